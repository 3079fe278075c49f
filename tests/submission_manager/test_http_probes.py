"""What load balancers, operators and programs ask an instance."""

import pytest

from fencehold.model.errors import ConfigurationError, Unavailable
from submission_manager.http import openapi, probes
from tests.submission_manager.http_parts import FakeTerm, running


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


async def test_without_tables_it_is_not_ready():
    async with running() as service:
        service.intake.missing = ["submission_attempts"]
        answer = await service.client.get("/readyz")
        assert (answer.status_code, "submission_attempts" in answer.text) == (503, True)


@pytest.mark.parametrize(
    "trouble",
    [
        Unavailable("gone"),
        ConfigurationError("a password is being changed", code="login_refused"),
        ConfigurationError("a certificate has expired", code="tls_refused"),
    ],
)
async def test_a_database_that_goes_away_does_not_take_every_instance_out_of_rotation(monkeypatch, trouble):
    monkeypatch.setattr(probes, "LOOK_EVERY_S", 0.0)
    async with running() as service:
        assert (await service.client.get("/readyz")).status_code == 200
        service.intake.trouble = trouble
        assert (await service.client.get("/readyz")).status_code == 200
        assert (await service.client.get("/v1/intents/a")).status_code == 503


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
            "200", "400", "405", "408", "409", "413", "500", "503",
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
