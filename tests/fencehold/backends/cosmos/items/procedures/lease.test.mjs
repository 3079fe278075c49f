import assert from 'node:assert/strict';
import test from 'node:test';

import { Partition } from './server_context.mjs';

const START = 1_000_000;
const LEASE = 60_000;
const EXPIRY = START + LEASE;

function put(partition, id = 'n1', more = {}) {
    const request = { id, holder: 'A', state: 'REQUESTED', document: { n: 1 }, item: { id, kind: 'deal', partition: 'deal/0' } };
    return one(partition, 'put', { ...request, ...more });
}

function acquire(partition, holder = 'A', id = 'n1') {
    return one(partition, 'acquire', { id, holder, leaseDuration: LEASE });
}

function one(partition, verb, request) {
    const { answers } = partition.run('lease', verb, [request]);
    assert.equal(answers.length, 1);
    return answers[0];
}

// An item that A holds until EXPIRY, with token 1.
function held() {
    const partition = new Partition({ now: START });
    put(partition);
    assert.equal(acquire(partition).refused, null);
    return partition;
}

const RENEW = { id: 'n1', holder: 'A', token: 1, leaseDuration: LEASE };
const SAVE = { id: 'n1', holder: 'A', token: 1, state: 'AGREED', document: { n: 2 } };
const KEY = { id: 'n1', holder: 'A', token: 1 };
const REQUESTS = { renew: RENEW, save: SAVE, delete: KEY, break: KEY };

// put

test('absent.put.always: an item is created free, with the server’s time and no token', () => {
    const partition = new Partition({ now: START });
    const { refused, item } = put(partition);
    assert.equal(refused, null);
    assert.equal(item.stateTimestamp, START);
    assert.deepEqual(item.lease, { leasedBy: null, leasedAt: null, leaseDuration: 0, expiresAt: 0, token: 0 });
    assert.deepEqual([item.kind, item.partition, item.state, item.document], ['deal', 'deal/0', 'REQUESTED', { n: 1 }]);
});

test('free.put.always: at the instant of expiry another may replace state and document', () => {
    const partition = held();
    partition.now = EXPIRY;
    const { refused, item } = put(partition, 'n1', { holder: 'B', state: 'OFFERED', document: { n: 3 } });
    assert.equal(refused, null);
    assert.deepEqual([item.state, item.stateTimestamp, item.document, item.lease.token], ['OFFERED', EXPIRY, { n: 3 }, 1]);
});

test('live.put.is_own: the holder replaces it and keeps the lease as it is', () => {
    const partition = held();
    const { lease } = partition.item('n1');
    partition.now = EXPIRY - 1;
    const { refused, item } = put(partition, 'n1', { state: 'OFFERED' });
    assert.equal(refused, null);
    assert.deepEqual(item.lease, lease);
});

test('live.put.is_own: one millisecond before expiry another is refused, told who and until when, and nothing is written', () => {
    const partition = held();
    partition.now = EXPIRY - 1;
    const before = partition.all();
    const { refused, item, now } = put(partition, 'n1', { holder: 'B', state: 'OFFERED' });
    assert.equal(refused, 'held_by_another');
    assert.deepEqual([item.lease.leasedBy, item.lease.expiresAt, now], ['A', EXPIRY, EXPIRY - 1]);
    assert.deepEqual(partition.all(), before);
});

// acquire

test('free.acquire.always: a free item is leased from the server’s now for as long as asked', () => {
    const partition = new Partition({ now: START });
    put(partition);
    partition.now = START + 5;
    const { refused, item } = acquire(partition);
    assert.equal(refused, null);
    const until = START + 5 + LEASE;
    assert.deepEqual(item.lease, { leasedBy: 'A', leasedAt: START + 5, leaseDuration: LEASE, expiresAt: until, token: 1 });
    assert.equal(item.stateTimestamp, START);
});

test('free.acquire.always: a lease that lapsed this instant is taken with a larger token', () => {
    const partition = held();
    partition.now = EXPIRY;
    const { refused, item } = acquire(partition, 'B');
    assert.equal(refused, null);
    assert.deepEqual([item.lease.leasedBy, item.lease.token], ['B', 2]);
});

test('live.acquire.is_own: acquiring again gives a new token, and the old one is over', () => {
    const partition = held();
    assert.equal(acquire(partition).item.lease.token, 2);
    assert.equal(one(partition, 'save', SAVE).refused, 'held_by_another');
});

test('live.acquire.is_own: another is refused until the last millisecond', () => {
    const partition = held();
    partition.now = EXPIRY - 1;
    const { refused, item } = acquire(partition, 'B');
    assert.equal(refused, 'held_by_another');
    assert.equal(item.lease.leasedBy, 'A');
});

test('an item that is not there is not acquired, renewed, saved or deleted', () => {
    const partition = new Partition({ now: START });
    for (const verb of ['acquire', 'renew', 'save', 'delete']) {
        const { refused, item } = one(partition, verb, { ...SAVE, leaseDuration: LEASE });
        assert.deepEqual([refused, item], ['absent', null]);
    }
    assert.deepEqual(partition.all(), []);
});

// renew

test('live.renew.is_holder: the lease goes on from the server’s now; nothing but lease fields is touched', () => {
    const partition = held();
    const before = partition.item('n1');
    partition.now = EXPIRY - 1;
    const { refused, item } = one(partition, 'renew', { ...RENEW, leaseDuration: 2 * LEASE });
    assert.equal(refused, null);
    const until = EXPIRY - 1 + 2 * LEASE;
    assert.deepEqual(item.lease, { ...before.lease, leaseDuration: 2 * LEASE, expiresAt: until });
    const strip = ({ lease, _etag, _ts, ...rest }) => rest;
    assert.deepEqual(strip(partition.item('n1')), strip(before));
    assert.equal(item.document, null, 'the answer to a batch leaves the documents out');
});

// break

test('absent.break.always: breaking the lease of nothing succeeds', () => {
    const { refused, item } = one(new Partition(), 'break', KEY);
    assert.deepEqual([refused, item], [null, null]);
});

test('free.break.always: a lapsed lease of another is broken without a write', () => {
    const partition = held();
    partition.now = EXPIRY;
    assert.equal(one(partition, 'break', { ...KEY, holder: 'B', token: 7 }).refused, null);
    assert.deepEqual(partition.operations, ['query']);
});

test('live.break.is_own_lease: the holder breaks it by its token, or by none; the token is remembered', () => {
    for (const token of [0, 1]) {
        const partition = held();
        assert.equal(one(partition, 'break', { ...KEY, token }).refused, null);
        assert.deepEqual([partition.item('n1').lease.leasedBy, partition.item('n1').lease.token], [null, 1]);
        assert.equal(acquire(partition, 'B').item.lease.token, 2);
    }
});

test('live.break.is_own_lease: another, and an older token of the holder, are refused', () => {
    const partition = held();
    acquire(partition);
    partition.now = EXPIRY - 1;
    const before = partition.all();
    for (const key of [{ ...KEY, holder: 'B', token: 0 }, { ...KEY, holder: 'B', token: 2 }, { ...KEY, token: 1 }]) {
        assert.equal(one(partition, 'break', key).refused, 'held_by_another');
    }
    assert.deepEqual(partition.all(), before);
});

// save and delete

test('live.save.is_holder: state and document are written, and naming a state is a transition', () => {
    const partition = held();
    partition.now = EXPIRY - 1;
    const { refused, item } = one(partition, 'save', SAVE);
    assert.equal(refused, null);
    assert.deepEqual([item.state, item.stateTimestamp, item.document], ['AGREED', EXPIRY - 1, { n: 2 }]);
    assert.deepEqual([item.lease.leasedBy, item.lease.expiresAt], ['A', EXPIRY]);
});

test('live.save.is_holder: what is not named stays as it is, and null is a document too', () => {
    const partition = held();
    partition.now = START + 10;
    const kept = one(partition, 'save', { ...KEY, document: { n: 2 } }).item;
    assert.deepEqual([kept.state, kept.stateTimestamp, kept.document], ['REQUESTED', START, { n: 2 }]);
    const moved = one(partition, 'save', { ...KEY, state: 'AGREED' }).item;
    assert.deepEqual([moved.state, moved.stateTimestamp, moved.document], ['AGREED', START + 10, { n: 2 }]);
    assert.equal(one(partition, 'save', { ...KEY, document: null }).item.document, null);
});

test('live.delete.is_holder: the item is gone', () => {
    const partition = held();
    partition.now = EXPIRY - 1;
    assert.deepEqual(one(partition, 'delete', KEY), { now: EXPIRY - 1, refused: null, item: null });
    assert.equal(acquire(partition).refused, 'absent');
});

test('an item that was deleted and put again is leased under a larger token than ever', () => {
    const partition = held();
    one(partition, 'delete', KEY);
    const { item } = put(partition, 'n1', { state: 'AGAIN' });
    assert.deepEqual([item.state, item.lease.token, item.tokenBefore], ['AGAIN', 1, 1]);
    assert.equal(one(partition, 'save', SAVE).refused, 'lapsed');
    assert.equal(acquire(partition).item.lease.token, 2);
    assert.equal(one(partition, 'save', SAVE).refused, 'held_by_another');
    assert.equal(partition.all().length, 1);
});

for (const verb of ['renew', 'save', 'delete']) {
    test(`live.${verb}.is_holder: refused at the instant of expiry, to another holder and to another token`, () => {
        const partition = held();
        const before = partition.all();
        for (const wrong of [{ holder: 'B' }, { token: 2 }, { token: 0 }]) {
            assert.equal(one(partition, verb, { ...REQUESTS[verb], ...wrong }).refused, 'held_by_another');
        }
        partition.now = EXPIRY;
        assert.equal(one(partition, verb, REQUESTS[verb]).refused, 'lapsed');
        assert.deepEqual(partition.all(), before);
        partition.now = EXPIRY - 1;
        assert.equal(one(partition, verb, REQUESTS[verb]).refused, null);
    });
}

test('a get tells what is there at the server’s now, and writes nothing', () => {
    const partition = held();
    partition.now = EXPIRY - 1;
    const { answers } = partition.run('lease', 'get', [{ id: 'n1' }, { id: 'n2' }]);
    assert.deepEqual(answers, [
        { now: EXPIRY - 1, refused: null, item: partition.item('n1') }, { now: EXPIRY - 1, refused: null, item: null },
    ]);
    assert.deepEqual(partition.operations, ['query', 'query']);
});

// one transaction

test('the clock is read after the item: a query that takes the lease’s last millisecond does not extend it', () => {
    const partition = held();
    partition.beforeOperation = () => { partition.now = EXPIRY; };
    partition.now = EXPIRY - 1;
    assert.equal(one(partition, 'save', SAVE).refused, 'lapsed');
});

test('another client’s write in between undoes the whole call', () => {
    const partition = held();
    put(partition, 'n2');
    acquire(partition, 'A', 'n2');
    partition.beforeOperation = (name) => {
        if (name === 'replace' && partition.operations.length === 4) partition.write(partition.item('n2'));
    };
    const before = partition.item('n1');
    partition.now = START + 1;
    assert.throws(() => partition.run('lease', 'renew', [RENEW, { ...RENEW, id: 'n2' }]), { number: 412 });
    assert.deepEqual(partition.item('n1'), before);
});

test('two that create the same item: one is refused by the server, and nothing of it remains', () => {
    const partition = new Partition();
    partition.beforeOperation = (name) => { if (name === 'create') partition.write({ id: 'n1', state: 'THEIRS' }); };
    assert.throws(() => put(partition), { number: 409 });
});

test('a verb that is not one is refused before anything is read', () => {
    const partition = held();
    assert.throws(() => partition.run('lease', 'steal', [KEY]), /no such verb/);
});

// batches

function heldMany(count) {
    const partition = new Partition({ now: START });
    const requests = [];
    for (let n = 0; n < count; n += 1) {
        put(partition, `n${n}`);
        acquire(partition, n % 3 ? 'A' : 'B', `n${n}`);
        requests.push({ ...RENEW, id: `n${n}` });
    }
    return { partition, requests };
}

test('a batch answers each key in its order, the refused among the others', () => {
    const { partition, requests } = heldMany(20);
    const { answers } = partition.run('lease', 'renew', requests);
    assert.deepEqual(answers.map((a) => a.refused), requests.map((_, n) => (n % 3 ? null : 'held_by_another')));
    assert.deepEqual(answers.map((a) => a.item.id), requests.map((r) => r.id));
});

test('the same item twice in a batch: the second request sees what the first wrote', () => {
    const partition = held();
    const { answers } = partition.run('lease', 'break', [KEY, { ...KEY, holder: 'B', token: 9 }]);
    assert.deepEqual(answers.map((a) => a.refused), [null, null]);
});

test('no more time: what was answered stands, the rest was not tried', () => {
    const { partition, requests } = heldMany(6);
    const mine = requests.filter((_, n) => n % 3);
    for (const operationsMax of [2, 3]) {
        partition.now += 1;
        partition.operationsMax = operationsMax;
        const { answers } = partition.run('lease', 'renew', mine);
        assert.equal(answers.length, 1);
        const renewed = mine.filter((r) => partition.item(r.id).lease.expiresAt === partition.now + LEASE);
        assert.deepEqual(renewed, [mine[0]]);
    }
});

test('no time at all: it throws, and nothing was executed', () => {
    for (const [verb, request] of Object.entries({ ...REQUESTS, acquire: RENEW, put: { ...SAVE, item: {} } })) {
        const partition = held();
        const before = partition.all();
        for (const operationsMax of [0, 1]) {
            partition.operationsMax = operationsMax;
            assert.throws(() => partition.run('lease', verb, [request]), /not accepted/);
            assert.deepEqual(partition.all(), before);
        }
    }
});

test('long documents: an answer stops growing before the server refuses it', () => {
    const partition = new Partition({ now: START });
    for (const id of ['a', 'b', 'c']) {
        put(partition, id, { document: 'x'.repeat(600_000) });
        acquire(partition, 'A', id);
    }
    assert.equal(partition.run('lease', 'renew', ['a', 'b', 'c'].map((id) => ({ ...RENEW, id }))).answers.length, 3);
    const { answers } = partition.run('lease', 'get', ['a', 'b', 'c'].map((id) => ({ id })));
    assert.equal(answers.length, 2);
    assert.ok(JSON.stringify(answers).length < 2_000_000);
});

test('an empty page with more behind it is not an absent item', () => {
    const partition = held();
    partition.isFirstPageEmpty = true;
    partition.pageSizes = [0, 0];
    partition.operationsMax = 20;
    assert.equal(one(partition, 'save', SAVE).refused, null);
});
