// The server context as a process: a request per line in, an answer per line out, so that the library's own client code
// runs the uploaded procedures. A space is a container of its own, with its procedures and its clock.

import { createInterface } from 'node:readline';

import { Failure, Partition } from './server_context.mjs';

const spaces = new Map();

class Space {
    constructor() {
        this.clock = () => Date.now();
        this.partitions = new Map();
        this.procedures = new Map();
        this.operationsMax = null;
    }

    partition(key) {
        if (!this.partitions.has(key)) this.partitions.set(key, new Partition({ now: () => this.clock() }));
        const partition = this.partitions.get(key);
        partition.operationsMax = this.operationsMax ?? Infinity;
        return partition;
    }
}

const VERBS = {
    set_clock(space, { now }) {
        space.clock = () => now;
    },
    shift_clock(space, { ahead }) {
        space.clock = () => Date.now() + ahead;
    },
    accept(space, { operations }) {
        space.operationsMax = operations;
    },
    create_procedure(space, { name, body }) {
        if (space.procedures.has(name)) throw new Failure(409, `there is a procedure ${name} already`);
        space.procedures.set(name, body);
        return { id: name };
    },
    drop_procedures(space) {
        space.procedures.clear();
    },
    execute(space, { partition, name, parameters }) {
        const body = space.procedures.get(name);
        if (!body) throw new Failure(404, `no procedure ${name}`);
        return space.partition(partition).execute(body, parameters);
    },
    read(space, { partition, id }) {
        return found(space.partition(partition), id);
    },
    all(space, { partition }) {
        return space.partition(partition).all();
    },
    query(space, { partition, query, parameters }) {
        return space.partition(partition).find(query, parameters);
    },
    create(space, { partition, document }) {
        if (space.partition(partition).item(document.id)) throw new Failure(409, 'Conflict');
        return space.partition(partition).write(document);
    },
    upsert(space, { partition, document }) {
        const before = space.partition(partition).item(document.id);
        return space.partition(partition).write({ ...document, _rid: before?._rid });
    },
    replace(space, { partition, document, etag }) {
        const before = unchanged(space.partition(partition), document.id, etag);
        return space.partition(partition).write({ ...document, _rid: before._rid });
    },
    patch(space, { partition, id, operations, etag }) {
        const document = unchanged(space.partition(partition), id, etag);
        for (const { op, path, value } of operations) {
            if (op !== 'set' && op !== 'replace') throw new Failure(400, `not a patch of ours: ${op}`);
            const names = path.split('/').slice(1);
            const last = names.pop();
            names.reduce((inner, name) => inner[name], document)[last] = value;
        }
        return space.partition(partition).write(document);
    },
    delete(space, { partition, id, etag }) {
        space.partition(partition).documents.delete(unchanged(space.partition(partition), id, etag)._self);
    },
};

function found(partition, id) {
    const document = partition.item(id);
    if (!document) throw new Failure(404, 'NotFound');
    return document;
}

function unchanged(partition, id, etag) {
    const document = found(partition, id);
    if (etag && document._etag !== etag) throw new Failure(412, 'PreconditionFailed');
    return document;
}

// An exception that leaves a procedure is answered as 400, with the number of its cause beside it.
function answerTo({ space, verb, ...request }) {
    if (!spaces.has(space)) spaces.set(space, new Space());
    try {
        return { answer: VERBS[verb](spaces.get(space), request) ?? null };
    } catch (fault) {
        const isScripts = verb === 'execute' && fault.message !== `no procedure ${request.name}`;
        return { fault: { status: isScripts ? 400 : fault.number, sub_status: isScripts ? fault.number ?? 0 : 0, message: fault.message } };
    }
}

for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(answerTo(JSON.parse(line)))}\n`);
}
