import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';

import { Partition } from './server_context.mjs';

const START = 1_000_000;
const LEASE = 60_000;

function partitionWith(count, state = 'REQUESTED') {
    const partition = new Partition({ now: START });
    for (let n = 0; n < count; n += 1) {
        partition.now = START + n;
        const item = { id: `n${n}`, kind: 'deal', partition: 'deal/0' };
        partition.run('lease', 'put', [{ id: item.id, holder: 'A', state, document: {}, item }]);
    }
    return partition;
}

function next(partition, { state = 'REQUESTED', limit = 20, holder = 'A', skip = [], since = 0, before = 2 ** 53 - 1 } = {}) {
    return partition.run('nextForState', state, limit, holder, LEASE, skip, since, before);
}

function ids({ items }) {
    return items.map((item) => item.id);
}

test('free.next.is_in_state: the longest in the state first, at most as many as asked for, each leased', () => {
    const partition = partitionWith(5);
    partition.now = START + 3;
    partition.run('lease', 'put', [{ id: 'n0', holder: 'A', state: 'REQUESTED', document: {} }]);
    partition.now = START + 100;
    const answer = next(partition, { limit: 3 });
    assert.deepEqual(ids(answer), ['n1', 'n2', 'n0']);
    assert.equal(answer.isStopped, false);
    const until = START + 100 + LEASE;
    for (const item of answer.items) {
        assert.deepEqual(item.lease, { leasedBy: 'A', leasedAt: START + 100, leaseDuration: LEASE, expiresAt: until, token: 1 });
        assert.deepEqual(partition.item(item.id), item);
    }
});

test('free.next.is_in_state: another state, a live lease of another and one’s own are left out', () => {
    const partition = partitionWith(3);
    partition.run('lease', 'acquire', [{ id: 'n0', holder: 'A', leaseDuration: LEASE }]);
    partition.run('lease', 'acquire', [{ id: 'n1', holder: 'B', leaseDuration: LEASE }]);
    assert.deepEqual(ids(next(partition, { state: 'AGREED' })), []);
    assert.deepEqual(ids(next(partition)), ['n2']);
    assert.deepEqual(ids(next(partition)), []);
});

test('free.next.is_in_state: a lease is left out until its last millisecond and taken at its expiry, with a larger token', () => {
    const partition = partitionWith(1);
    const { items: [first] } = next(partition);
    partition.now = first.lease.expiresAt - 1;
    assert.deepEqual(ids(next(partition, { holder: 'B' })), []);
    partition.now = first.lease.expiresAt;
    const { items: [second] } = next(partition, { holder: 'B' });
    assert.deepEqual([second.lease.leasedBy, second.lease.token], ['B', 2]);
});

test('a broken lease is free at once', () => {
    const partition = partitionWith(1);
    next(partition);
    partition.run('lease', 'break', [{ id: 'n0', holder: 'A', token: 0 }]);
    assert.deepEqual(ids(next(partition, { holder: 'B' })), ['n0']);
});

test('a deleted item is never next, whatever state is asked for', () => {
    const partition = partitionWith(1);
    const { items: [item] } = next(partition);
    partition.run('lease', 'delete', [{ id: 'n0', holder: 'A', token: item.lease.token }]);
    assert.deepEqual(ids(next(partition)), []);
});

test('what is to be skipped is left out while paging, and not written', () => {
    for (const pageSizes of [[], [1, 0, 2, 1, 1, 1], [3]]) {
        const partition = partitionWith(6);
        partition.pageSizes = [...pageSizes];
        const answer = next(partition, { limit: 2, skip: ['n0', 'n1', 'n2', 'n4', 'elsewhere'] });
        assert.deepEqual([ids(answer), answer.isStopped], [['n3', 'n5'], false]);
        assert.equal(partition.operations.filter((name) => name === 'replace').length, 2);
    }
});

test('only what came into the state within the stretch is leased', () => {
    const partition = partitionWith(5);
    assert.deepEqual(ids(next(partition, { since: START + 1, before: START + 3 })), ['n1', 'n2']);
    assert.deepEqual(ids(next(partition)), ['n0', 'n3', 'n4']);
});

test('however many are skipped, they are one page, up to a thousand', () => {
    const partition = partitionWith(99);
    const skip = partition.all().slice(0, 98).map((item) => item.id);
    assert.deepEqual(ids(next(partition, { limit: 1, skip })), ['n98']);
    assert.deepEqual(partition.operations, ['query', 'replace']);
});

test('short and empty pages are followed to the end', () => {
    for (const pageSizes of [[0, 2, 0, 0, 1], [1, 1, 1, 1, 1], [4, 1]]) {
        const partition = partitionWith(5);
        partition.pageSizes = pageSizes;
        assert.deepEqual(ids(next(partition, { limit: 5 })), ['n0', 'n1', 'n2', 'n3', 'n4']);
    }
});

test('a page is asked for where the one before ended', () => {
    const partition = partitionWith(3);
    partition.isFirstPageEmpty = true;
    partition.operationsMax = 20;
    assert.deepEqual(ids(next(partition)), ['n0', 'n1', 'n2']);
});

test('a batch of 20 asks for one page and writes each item once', () => {
    const partition = partitionWith(30);
    assert.equal(next(partition).items.length, 20);
    assert.deepEqual(partition.operations, ['query', ...Array(20).fill('replace')]);
});

test('no more time: what was leased stands and is told, and the rest is free', () => {
    const partition = partitionWith(4);
    partition.operationsMax = 3;
    const answer = next(partition);
    assert.deepEqual([ids(answer), answer.isStopped], [['n0', 'n1'], true]);
    partition.operationsMax = Infinity;
    assert.deepEqual(ids(next(partition, { holder: 'B' })), ['n2', 'n3']);
});

test('no more time for the next page: the same', () => {
    const partition = partitionWith(2);
    partition.pageSizes = [1];
    partition.operationsMax = 2;
    const answer = next(partition);
    assert.deepEqual([ids(answer), answer.isStopped], [['n0'], true]);
});

test('no time at all: it throws, and nothing was executed; "none" would be a lie', () => {
    const partition = partitionWith(2);
    const before = partition.all();
    for (const operationsMax of [0, 1]) {
        partition.operationsMax = operationsMax;
        assert.throws(() => next(partition), /not accepted/);
        assert.deepEqual(partition.all(), before);
    }
});

test('another client’s write in between undoes the whole batch', () => {
    const partition = partitionWith(3);
    partition.beforeOperation = () => {
        if (partition.operations.length === 3) partition.write(partition.item('n1'));
    };
    assert.throws(() => next(partition), { number: 412 });
    assert.deepEqual(partition.all().map((item) => item.lease.token), [0, 0, 0]);
});

test('long documents: an answer stops growing before the server refuses it', () => {
    const partition = new Partition({ now: START });
    for (const id of ['a', 'b', 'c']) {
        const item = { id, kind: 'deal', partition: 'deal/0' };
        partition.run('lease', 'put', [{ id, holder: 'A', state: 'REQUESTED', document: 'x'.repeat(600_000), item }]);
    }
    const answer = next(partition);
    assert.deepEqual([ids(answer), answer.isStopped], [['a', 'b'], true]);
    assert.deepEqual(ids(next(partition)), ['c']);
});

test('a stand-in’s own mistake is not silent: a query that the procedures do not use is refused', () => {
    const partition = partitionWith(1);
    const text = readFileSync(new URL('./server_context.mjs', import.meta.url), 'utf8');
    for (const name of ['lease', 'nextForState']) {
        const script = readFileSync(new URL(`../../../../../../src/fencehold/backends/cosmos/js/${name}.js`, import.meta.url), 'utf8');
        for (const [, query] of script.matchAll(/query: '([^']+)'/g)) assert.ok(text.includes(`'${query}'`), query);
    }
    assert.equal(partition.all().length, 1);
});

test('the procedures stay within the language that the server’s engine surely has', () => {
    for (const name of ['lease', 'nextForState']) {
        const script = readFileSync(new URL(`../../../../../../src/fencehold/backends/cosmos/js/${name}.js`, import.meta.url), 'utf8');
        const code = script.replace(/\/\/.*$/gm, '');
        assert.doesNotMatch(code, /=>|`|\b(let|const|class|async|await|Promise|require|import|setTimeout|eval)\b|\.\.\./);
    }
});
