// name: nextForState
// rules: free.next.is_in_state
// Leases up to `limit` free items of one state in one logical partition, the longest in it first, as one transaction:
// whatever is thrown here undoes all of it. A live lease, the caller's own too, is left out by the query itself; the
// documents whose ids are in `skip` while paging, for a query may not be as long as all of them.
// Only items in that state since a time from `since` on and before `before`, in milliseconds.
// Out: {now, items, isStopped}; stopped when the server gave no more time or the answer grew long: there may be more.
function nextForState(state, limit, holder, leaseDuration, skip, since, before) {
    var PAGE_SIZE_MAX = 1000;
    var REPLY_CHARACTERS_MAX = 1000000; // the server takes 4 MB, and a character may be three bytes
    var now = new Date().getTime(); // the server's; read before the items, so that a lease never lasts longer than asked
    var query = {
        query: 'SELECT * FROM c WHERE c.state = @state AND c.lease.expiresAt <= @now AND c.stateTimestamp >= @since AND c.stateTimestamp < @before ORDER BY c.stateTimestamp',
        parameters: [
            { name: '@state', value: state }, { name: '@now', value: now },
            { name: '@since', value: since }, { name: '@before', value: before }
        ]
    };
    var collection = getContext().getCollection();
    var leased = [];
    var skipped = Object.create(null);
    skip.forEach(function (id) { skipped[id] = true; });
    var replyCharacters = 0;
    findPage(null);

    // A page may be short, even empty, and still have others after it.
    function findPage(continuation) {
        var options = { pageSize: Math.min(limit - leased.length + skip.length, PAGE_SIZE_MAX) };
        if (continuation) options.continuation = continuation;
        goOn(collection.queryDocuments(collection.getSelfLink(), query, options, function (err, found, page) {
            if (err) throw err;
            leaseNext(found, 0, page.continuation);
        }));
    }

    function leaseNext(found, index, continuation) {
        if (leased.length === limit) return answer(false);
        if (replyCharacters > REPLY_CHARACTERS_MAX) return answer(true);
        while (index < found.length && skipped[found[index].id]) index += 1;
        if (index < found.length) return grant(found[index], function () { leaseNext(found, index + 1, continuation); });
        if (continuation) return findPage(continuation);
        answer(false);
    }

    // The etag: a client that writes without procedures must not be overwritten.
    function grant(item, done) {
        item.lease = {
            leasedBy: holder, leasedAt: now, leaseDuration: leaseDuration,
            expiresAt: now + leaseDuration, token: item.lease.token + 1
        };
        goOn(collection.replaceDocument(item._self, item, { etag: item._etag }, function (err, stored) {
            if (err) throw err;
            replyCharacters += JSON.stringify(stored).length;
            leased.push(stored);
            done();
        }));
    }

    function answer(isStopped) {
        getContext().getResponse().setBody({ now: now, items: leased, isStopped: isStopped });
    }

    // Not accepted: the server wants this call to end. What is leased so far stands; nothing yet means not executed.
    function goOn(isAccepted) {
        if (isAccepted) return;
        if (!leased.length) throw new Error('fencehold: not accepted');
        answer(true);
    }
}
