// name: lease
// rules: absent.put.always free.put.always live.put.is_own
// rules: free.acquire.always live.acquire.is_own
// rules: live.renew.is_holder
// rules: absent.break.always free.break.always live.break.is_own_lease
// rules: live.save.is_holder live.delete.is_holder
// One verb on one or more items of one logical partition, as one transaction: whatever is thrown here undoes all of it.
// A refusal is an answer, not an exception: it tells who holds the item and until when.
// In:  requests [{id, holder, token, leaseDuration, state, document, item}], times in ms; a save leaves what is not in
//      the request as it is; `item` is what else a put's new document has, its partition key among it. The verb get
//      reads here too: on the server's own clock, and what a procedure wrote just before.
// Out: {answers: [{now, refused, item}]}, one for each request in its order; fewer when the server gave no more time or
//      the answer grew long: the rest was not tried. `refused` is null, "absent", "lapsed" or "held_by_another".
function lease(verb, requests) {
    var REPLY_CHARACTERS_MAX = 1000000; // the server takes 4 MB, and a character may be three bytes

    // The table of model/items.py: on an absent, a free or a live item, when is this verb allowed, and what does it write?
    var rules = {
        get:      { absent: [always, keep], free: [always, keep], live: [always, keep] },
        put:      { absent: [always, create], free: [always, write], live: [isOwn, write] },
        acquire:  { free: [always, grant], live: [isOwn, grant] },
        renew:    { live: [isHolder, extend] },
        'break':  { absent: [always, keep], free: [always, keep], live: [isOwnLease, vacate] },
        save:     { live: [isHolder, write] },
        'delete': { live: [isHolder, remove] }
    }[verb];
    if (!rules) throw new Error('fencehold: no such verb: ' + verb);

    var collection = getContext().getCollection();
    var answers = [];
    var replyCharacters = 0;
    answerNext();

    function answerNext() {
        var isDone = answers.length === requests.length;
        if (isDone || replyCharacters > REPLY_CHARACTERS_MAX) {
            getContext().getResponse().setBody({ answers: answers });
        } else {
            find(requests[answers.length], null);
        }
    }

    // By equality, one at a time: that is always an index seek, and sees what this procedure wrote before.
    function find(request, continuation) {
        var query = { query: 'SELECT * FROM c WHERE c.id = @id', parameters: [{ name: '@id', value: request.id }] };
        var options = continuation ? { continuation: continuation } : {};
        goOn(collection.queryDocuments(collection.getSelfLink(), query, options, function (err, found, page) {
            if (err) throw err;
            if (!found.length && page.continuation) find(request, page.continuation);
            else decide(request, found[0]);
        }));
    }

    function decide(request, item) {
        var now = new Date().getTime(); // the server's, read after the item
        var row = rowOf(item, now);
        var rule = rules[row];
        if (rule && rule[0](item, request)) {
            rule[1](item, request, now);
        } else {
            reply(now, { absent: 'absent', free: 'lapsed', live: 'held_by_another' }[row], item);
        }
    }

    function rowOf(item, now) {
        if (!item || item.deleted) return 'absent';
        return item.lease.leasedBy !== null && item.lease.expiresAt > now ? 'live' : 'free';
    }

    // when

    function always() {
        return true;
    }

    function isOwn(item, request) {
        return item.lease.leasedBy === request.holder;
    }

    function isHolder(item, request) {
        return isOwn(item, request) && item.lease.token === request.token;
    }

    function isOwnLease(item, request) {
        return isOwn(item, request) && (request.token === 0 || item.lease.token === request.token);
    }

    // then

    // What a deleted item leaves behind is its last token: the next lease must have a larger one.
    function create(item, request, now) {
        var created = request.item;
        created.state = request.state;
        created.stateTimestamp = now;
        created.document = request.document;
        created.lease = noLease(item ? item.lease.token : 0);
        created.tokenBefore = created.lease.token; // it was not leased itself yet
        if (item) {
            replace(item, created, now);
        } else {
            goOn(collection.createDocument(collection.getSelfLink(), created, {}, function (err, stored) {
                if (err) throw err;
                reply(now, null, stored);
            }));
        }
    }

    function write(item, request, now) {
        if ('state' in request) {
            item.state = request.state;
            item.stateTimestamp = now;
        }
        if ('document' in request) item.document = request.document; // null is a document too
        replace(item, item, now);
    }

    function grant(item, request, now) {
        item.lease = {
            leasedBy: request.holder, leasedAt: now, leaseDuration: request.leaseDuration,
            expiresAt: now + request.leaseDuration, token: item.lease.token + 1
        };
        replace(item, item, now);
    }

    function extend(item, request, now) {
        item.lease.leaseDuration = request.leaseDuration;
        item.lease.expiresAt = now + request.leaseDuration;
        replace(item, item, now);
    }

    function vacate(item, request, now) {
        item.lease = noLease(item.lease.token);
        replace(item, item, now);
    }

    function keep(item, request, now) {
        reply(now, null, item);
    }

    function remove(item, request, now) {
        item.deleted = true;
        item.state = null;
        item.document = null;
        item.lease = noLease(item.lease.token);
        replace(item, item, now);
    }

    function noLease(token) {
        return { leasedBy: null, leasedAt: null, leaseDuration: 0, expiresAt: 0, token: token };
    }

    // The etag: a client that writes without procedures must not be overwritten.
    function replace(item, changed, now) {
        goOn(collection.replaceDocument(item._self, changed, { etag: item._etag }, function (err, stored) {
            if (err) throw err;
            reply(now, null, stored);
        }));
    }

    // A batch of leases that are renewed or broken is answered without the documents.
    function reply(now, refused, item) {
        var answer = { now: now, refused: refused, item: item && !item.deleted ? item : null };
        if (answer.item && !refused && (verb === 'renew' || verb === 'break')) answer.item.document = null;
        replyCharacters += JSON.stringify(answer).length;
        answers.push(answer);
        answerNext();
    }

    // Not accepted: the server wants this call to end. What is answered so far stands; nothing yet means not executed.
    function goOn(isAccepted) {
        if (isAccepted) return;
        if (!answers.length) throw new Error('fencehold: not accepted');
        getContext().getResponse().setBody({ answers: answers });
    }
}
