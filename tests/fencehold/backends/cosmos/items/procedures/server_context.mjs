// One logical partition of a container, as a stored procedure sees it: the part of the documented server-side API that
// our procedures use, documents in memory, a clock to set, a transaction that is undone when the procedure throws.
// Not here: time limits, request charges, throttling; see docs/cosmos.md.

import { readFileSync } from 'node:fs';
import vm from 'node:vm';

const SCRIPTS = new URL('../../../../../../src/fencehold/backends/cosmos/js/', import.meta.url);
const scriptOf = (name) => readFileSync(new URL(`${name}.js`, SCRIPTS), 'utf8');
const COLLECTION = 'dbs/app/colls/fencehold';

// Only the texts that the procedures and the client use: another one is a mistake.
const byTime = (a, b) => a.stateTimestamp - b.stateTimestamp;
const QUERIES = {
    'SELECT * FROM c WHERE c.pk = @partition AND IS_STRING(c.state) ORDER BY c.stateTimestamp': (documents) =>
        documents.filter((c) => typeof c.state === 'string').sort(byTime),
    'SELECT * FROM c WHERE c.pk = @partition AND c.state = @state ORDER BY c.stateTimestamp': (documents, { state }) =>
        documents.filter((c) => c.state === state).sort(byTime),
    'SELECT * FROM c WHERE c.id = @id': (documents, { id }) => documents.filter((c) => c.id === id),
    'SELECT * FROM c WHERE c.state = @state AND c.lease.expiresAt <= @now AND c.stateTimestamp >= @since AND c.stateTimestamp < @before ORDER BY c.stateTimestamp':
        freeInState,
    'SELECT * FROM c WHERE c.pk = @partition AND c.state = @state AND c.lease.expiresAt <= @now AND c.stateTimestamp >= @since AND c.stateTimestamp < @before ORDER BY c.stateTimestamp':
        freeInState,
};

// A comparison with a value of another type is undefined on the server, and the document is left out.
function freeInState(documents, { state, now, since, before }) {
    const isFree = (c) => typeof c.lease.expiresAt === 'number' && c.lease.expiresAt <= now;
    const isWithin = (c) => c.stateTimestamp >= since && c.stateTimestamp < before;
    return documents.filter((c) => c.state === state && isFree(c) && isWithin(c)).sort(byTime);
}

const START = { stateTimestamp: -1, rid: -1 };

export class Failure extends Error {
    constructor(number, message) {
        super(message);
        this.number = number;
    }
}

export class Partition {
    constructor({ now = 1_000_000 } = {}) {
        this.now = now; // ms; a function or a number
        this.documents = new Map();
        this.changes = 0;
        this.operations = []; // the names of what the last procedure asked for
        this.operationsMax = Infinity; // from then on, nothing is accepted
        this.isFirstPageEmpty = false; // whoever asks without a continuation never gets on
        this.pageSizes = []; // of the next pages: one may be shorter than asked for, even empty
        this.beforeOperation = () => {}; // somebody else's write in between
    }

    clock() {
        return typeof this.now === 'function' ? this.now() : this.now;
    }

    // What a client does without a procedure.
    write(document) {
        this.changes += 1;
        const stored = {
            ...structuredClone(document), _rid: document._rid ?? `rid${this.changes}`,
            _self: `${COLLECTION}/docs/${document._rid ?? `rid${this.changes}`}/`,
            _etag: `"${this.changes}"`, _ts: Math.floor(this.clock() / 1000),
        };
        this.documents.set(stored._self, stored);
        return structuredClone(stored);
    }

    all() {
        return structuredClone([...this.documents.values()]);
    }

    item(id) {
        return structuredClone([...this.documents.values()].find((c) => c.id === id));
    }

    // The texts of both the procedures and the client.
    find(query, parameters) {
        const search = QUERIES[query.replace(/\s+/g, ' ')];
        if (!search) throw new Failure(400, `not a query of ours: ${query}`);
        const values = Object.fromEntries(parameters.map(({ name, value }) => [name.slice(1), value]));
        return structuredClone(search([...this.documents.values()], values));
    }

    // Runs the file as it stands.
    run(name, ...parameters) {
        return this.execute(scriptOf(name), parameters);
    }

    // What the script throws is thrown here, and nothing of it remains.
    execute(script, parameters) {
        const before = new Map(this.documents);
        const call = new Call(this);
        try {
            call.run(script, parameters);
            return call.body;
        } catch (fault) {
            this.documents = before;
            throw fault;
        }
    }
}

// One engine for all calls, as the server reuses its own: a script's text is read once.
let running;
const procedures = new Map();
class ServerDate extends Date {
    constructor() {
        super(running.partition.clock());
    }
}
const engine = vm.createContext({ getContext: () => running.context(), Date: ServerDate });

function procedureOf(script) {
    if (!procedures.has(script)) procedures.set(script, vm.runInContext(`(${script}\n)`, engine));
    return procedures.get(script);
}

class Call {
    constructor(partition) {
        this.partition = partition;
        this.body = null;
        this.queue = [];
        partition.operations = [];
    }

    run(script, parameters) {
        running = this;
        procedureOf(script)(...structuredClone(parameters));
        while (this.queue.length) this.queue.shift()();
    }

    context() {
        const collection = {
            getSelfLink: () => COLLECTION,
            queryDocuments: (link, query, options, callback) => this.query(link, query, options, callback),
            createDocument: (link, body, options, callback) => this.create(link, body, callback),
            replaceDocument: (link, body, options, callback) => this.replace(link, body, options, callback),
        };
        const response = { setBody: (body) => { this.body = JSON.parse(JSON.stringify(body)); } };
        return { getCollection: () => collection, getResponse: () => response };
    }

    // A callback runs after the procedure has returned, its answer or its error given as the first argument.
    ask(name, callback, operation) {
        if (this.partition.operations.length >= this.partition.operationsMax) return false;
        this.partition.operations.push(name);
        this.queue.push(() => {
            this.partition.beforeOperation(name);
            let answer;
            try {
                answer = operation();
            } catch (fault) {
                if (!(fault instanceof Failure)) throw fault;
                return callback(fault);
            }
            callback(undefined, ...answer);
        });
        return true;
    }

    query(link, { query, parameters }, options, callback) {
        if (link !== COLLECTION) throw new Failure(400, `not our collection: ${link}`);
        return this.ask('query', callback, () => {
            // A continuation stands for a place in the order, not for a count: what no longer matches is still behind us.
            const place = options.continuation ? JSON.parse(options.continuation) : START;
            const rest = this.partition.find(query, parameters).filter((c) => isAfter(c, place));
            const isFirst = !options.continuation && this.partition.isFirstPageEmpty;
            const most = isFirst ? 0 : this.partition.pageSizes.shift() ?? 100;
            const page = rest.slice(0, Math.min(options.pageSize || 100, most));
            const next = JSON.stringify(page.length ? placeOf(page.at(-1)) : place);
            return [page, { continuation: rest.length > page.length ? next : undefined }];
        });
    }

    create(link, body, callback) {
        if (link !== COLLECTION) throw new Failure(400, `not our collection: ${link}`);
        return this.ask('create', callback, () => {
            if (this.partition.item(body.id)) throw new Failure(409, 'Conflict');
            return [this.partition.write(JSON.parse(JSON.stringify(body)))];
        });
    }

    replace(link, body, options, callback) {
        return this.ask('replace', callback, () => {
            const stored = this.partition.documents.get(link);
            if (!stored) throw new Failure(404, 'NotFound');
            if (options.etag && options.etag !== stored._etag) throw new Failure(412, 'PreconditionFailed');
            return [this.partition.write({ ...JSON.parse(JSON.stringify(body)), _rid: stored._rid })];
        });
    }
}

function placeOf(document) {
    return { stateTimestamp: document.stateTimestamp ?? 0, rid: Number(document._rid.slice(3)) };
}

function isAfter(document, place) {
    const own = placeOf(document);
    return own.stateTimestamp > place.stateTimestamp || (own.stateTimestamp === place.stateTimestamp && own.rid > place.rid);
}
