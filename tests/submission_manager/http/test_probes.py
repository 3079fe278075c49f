"""What load balancers, operators and programs ask an instance."""

import pytest

from fencehold.model.errors import ConfigurationError, Unavailable
from submission_manager.http import openapi, probes
from tests.submission_manager.http.parts import FakeTerm, Running, running, until


async def test_health_never_asks_the_database():
    async with running() as service:
        service.intake.trouble = Unavailable("gone")
        answer = await service.client.get("/healthz")
        assert (answer.status_code, answer.text) == (200, "ok")


async def test_leader_and_follower_are_both_ready_and_say_who_they_are():
    async with running() as service:
        answer = await service.client.get("/readyz")
        assert (answer.status_code, answer.text) == (200, "mode=follower holder_id=sm-01\n")
        assert (await service.client.get("/leaderz")).status_code == 503
        service.role.term = FakeTerm()
        answer = await service.client.get("/readyz")
        assert answer.text.startswith("mode=leader holder_id=sm-01 lease_expires_at=2026-02-02T12:00:10.000Z")
        assert answer.status_code == 200
        assert (await service.client.get("/leaderz")).status_code == 200


async def test_without_tables_it_is_not_ready(monkeypatch):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running() as service:
        service.intake.missing = ["submission_attempts"]
        await looked_again(service)
        answer = await service.client.get("/readyz")
        assert (answer.status_code, "submission_attempts" in answer.text) == (503, True)
        service.intake.missing = []
        await looked_again(service)
        assert (await service.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    "trouble",
    [
        ConfigurationError("a password is being changed", code="login_refused"),
        ConfigurationError("a certificate has expired", code="tls_refused"),
    ],
)
async def test_a_login_that_is_being_changed_takes_no_instance_out_of_rotation(monkeypatch, trouble):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running() as service:
        service.intake.trouble = trouble
        await looked_again(service)
        assert (await service.client.get("/readyz")).status_code == 200


async def test_a_database_that_goes_away_does_not_take_every_instance_out_of_rotation(monkeypatch):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running() as service:
        assert (await service.client.get("/readyz")).text == "mode=follower holder_id=sm-01\n"
        service.intake.trouble = Unavailable("gone")
        await looked_again(service)
        answer = await service.client.get("/readyz")
        assert (answer.status_code, "database_silent_s=0" in answer.text) == (200, True)
        assert (await service.client.get("/v1/intents/a")).status_code == 503
        service.intake.trouble = None
        await looked_again(service)
        assert (await service.client.get("/readyz")).text == "mode=follower holder_id=sm-01\n"


async def test_what_keeps_an_instance_from_leading_is_named_and_it_stays_in_rotation():
    async with running(keeps_from_leading=lambda: "[no_permission] no INSERT on submission_attempts") as service:
        answer = await service.client.get("/readyz")
        expected = "mode=follower holder_id=sm-01 cannot_lead=[no_permission]_no_INSERT_on_submission_attempts\n"
        assert (answer.status_code, answer.text) == (200, expected)


async def test_an_instance_whose_first_look_has_no_answer_yet_is_ready_at_once(monkeypatch):
    """It serves only after it has seen its tables, so it knows."""
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running(hangs=True) as service:
        await until(lambda: service.intake.table_looks == 1)
        answer = await service.client.get("/readyz", timeout=5)
        assert (answer.status_code, service.intake.table_looks) == (200, 1)


async def test_a_fault_of_the_look_itself_does_not_end_it(monkeypatch):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.001)
    async with running() as service:
        service.intake.trouble = RuntimeError("a fault")
        await looked_again(service)
        assert ("internal_error", {"error": "RuntimeError: a fault"}) in service.facts.told
        service.intake.trouble = None
        await looked_again(service)


async def looked_again(service: Running) -> None:
    """Two of them: the first may have begun before what the caller changed."""
    before = service.intake.table_looks
    await until(lambda: service.intake.table_looks > before + 2)


async def test_the_openapi_document_names_every_route_and_every_field():
    async with running() as service:
        document = (await service.client.get("/openapi.json")).json()
        assert document == openapi.document()
        assert set(document["paths"]) == {
            "/v1/intents", "/v1/intents/{intentId}", "/v1/intents/{intentId}/history",
            "/healthz", "/readyz", "/leaderz", "/metrics",
        }  # fmt: skip
        schemas = document["components"]["schemas"]
        assert schemas["Submission"]["required"] == ["intentId", "submissionTarget"]
        assert schemas["Submission"]["additionalProperties"] is False
        assert set(schemas["Intent"]["properties"]) == {
            "intentId", "submissionTarget", "createdAt", "status", "completedAt", "rejectedReason", "exhaustedReason",
        }  # fmt: skip
        assert set(document["paths"]["/v1/intents"]["post"]["responses"]) == {
            "200", "400", "405", "408", "409", "413", "429", "500", "503",
        }  # fmt: skip


async def test_the_documents_references_all_lead_somewhere():
    document = openapi.document()
    text = str(document)
    names = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(document["components"]["schemas"])
    assert "Error" in names


async def test_the_docs_page_is_complete_and_loads_nothing_from_elsewhere():
    async with running() as service:
        answer = await service.client.get("/docs")
        assert answer.headers["content-type"].startswith("text/html")
        assert all(path in answer.text for path in openapi.document()["paths"])
        assert "http://" not in answer.text
        assert "https://" not in answer.text
        assert "<script" not in answer.text
