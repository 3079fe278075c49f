/* Lease and fence: what holds under every interleaving of contenders, network and store.

   Claims, each an assertion:
     C1  no write of an older epoch is accepted after a write of a newer one
     C2  all accepted writes of one epoch come from one contender
     C3  no two contenders believe at the same time that their term is valid
     C4  an open fenced transaction keeps the row from takeover for at most one LEASE after the row lapsed

   Time is discrete and unbounded. Nothing holds a clock reading: what is kept is how much time is LEFT (or, for a
   request, its AGE since it was sent), and a tick moves all of them at once. So `expires_at <= now` is row_left == 0.
   A frozen or dead process is one that takes no step: every interleaving is tried, so it may freeze anywhere.

   Switches. All but N, LEASE, EPOCHS, GIVE_UPS, TX_LIMIT and SAMEID plant a fault, and the check must then fail.
     -DFENCE=1                right (default): the guard locks the row until the commit, and takeover waits for it
     -DFENCE=0                no guard
     -DFENCE=2                the guard looks but does not lock (WHERE EXISTS ...; read, then write)
     -DFENCE=3                the guard locks, but compares the holder only, not the epoch
     -DSAMEID                 all contenders use one holder id (a reused host name): right with FENCE=1, not with 3
     -DDEADLINE_FROM_ANSWER   the local deadline counts from the answer, not from the sending
     -DRETRY_FULL_LEASE       a recognised grant is trusted for a whole lease, not for what the store says is left
     -DNO_EPOCH_BUMP          takeover keeps the epoch
     -DNO_TX_TIMEOUT          the server never ends a frozen holder's open transaction */

#ifndef N
#define N 2             /* contenders */
#endif
#ifndef LEASE
#define LEASE 2         /* ticks */
#endif
#ifndef TX_LIMIT
#define TX_LIMIT LEASE  /* ticks after which the server ends an open fenced transaction */
#endif
#ifndef EPOCHS
#define EPOCHS 3        /* grants before the store stops granting: bounds the state space, time goes on */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 2      /* requests whose sender stops waiting: executed later, or never, the answer lost */
#endif
#ifndef FENCE
#define FENCE 1
#endif

#ifdef SAMEID
#define ID(i) 1
#else
#define ID(i) (i + 1)
#endif

#if FENCE == 1 || FENCE == 3
#define LOCKS(i) (tx[i] == OPEN)
#else
#define LOCKS(i) false
#endif

#define NOTHING 0
#define ACQUIRE 1
#define RENEW   2
#define RELEASE 3

#define NONE   0
#define OPEN   1
#define KILLED 2

/* The lease row. Nonces are never reused, so it is enough to know whose current nonce stands in it (0: nobody's) */
byte row_holder, row_epoch, row_left, row_nonce_of;

/* What each contender believes: its term (0: none) and how long its deadline is away */
byte epoch[N], left[N];
/* The request it waits for: ticks since it was SENT, at most LEASE, where nothing depends on it any more */
byte age[N];
/* A request its sender no longer waits for, still on its way to the store */
byte stray[N], stray_epoch[N];
bool stray_is_current[N];   /* an acquire: it carries its sender's current nonce */
byte give_ups;
/* Its fenced transaction */
byte tx[N], tx_left[N];

/* The table that is written: highest epoch accepted, and from whom */
byte written_epoch, written_by;
/* Ticks that the lapsed row has been kept from takeover by an open transaction */
byte blocked;

inline start_term(i, e) {
    epoch[i] = e; left[i] = trusted;
    for (other : 0 .. N - 1) {
        assert(other == i || epoch[other] == 0 || left[other] == 0)                              /* C3 */
    }
    other = 0
}

#ifdef NO_TX_TIMEOUT
#define OVERDUE(i) false
#else
#define OVERDUE(i) (tx[i] == OPEN && tx_left[i] == 0)
#endif
#if N == 2
#define NOBODY_OVERDUE !(OVERDUE(0) || OVERDUE(1))
#else
#define NOBODY_OVERDUE !(OVERDUE(0) || OVERDUE(1) || OVERDUE(2))
#endif

inline delivered(i) { stray[i] = NOTHING; stray_epoch[i] = 0; stray_is_current[i] = false; no_epoch = 0; no_ticks = 0 }

/* The next acquire is a new request: it must not recognise what earlier ones were granted */
inline take_new_nonce(i) {
    stray_is_current[i] = false;
    if :: row_nonce_of == i + 1 -> row_nonce_of = 0 :: else fi
}

/* Nobody asks who held a lapsed row; forgetting it saves states. The epoch stays */
inline lapse() { row_left = 0; row_holder = 0; row_nonce_of = 0 }

inline end_term(i) { epoch[i] = 0; left[i] = 0 }

inline row_is_locked() {
    locked = false;
    for (other : 0 .. N - 1) { locked = locked || LOCKS(other) }
    other = 0
}

/* acquire: `e` and `ticks` are the store's answer, 0 when refused. Held by a transaction is refused as "not yet"; to
   queue for the lock is the same as to be executed later, which any request may be. Contenders are alike, so the one
   that gets the first grant may be called 0: half the states. */
inline store_acquire(i, is_current, e, ticks) {
    row_is_locked();
    if
    :: row_left > 0 && row_nonce_of == i + 1 && is_current ->              /* its own grant, whose answer was lost */
        e = row_epoch; ticks = row_left
    :: row_left == 0 && !locked && row_epoch < EPOCHS && (row_epoch > 0 || i == 0) ->
#ifdef NO_EPOCH_BUMP
        row_epoch = 1;
#else
        row_epoch++;
#endif
        row_holder = ID(i); row_left = LEASE; row_nonce_of = (is_current -> i + 1 : 0); blocked = 0;
        e = row_epoch; ticks = row_left
    :: else -> e = 0; ticks = 0
    fi;
    locked = false
}

/* renew: waits for no transaction, since it leaves the key (name, epoch) alone */
inline store_renew(i, e, ticks) {
    if
    :: row_left > 0 && row_holder == ID(i) && row_epoch == e -> row_left = LEASE; ticks = LEASE
    :: else -> ticks = 0
    fi
}

/* release: lapses the row and keeps it, so that epochs go on */
inline store_release(i, e) {
    if
    :: row_left > 0 && row_holder == ID(i) && row_epoch == e -> lapse()
    :: else
    fi
}

/* How long an answer is trusted: what the store said was left, less the time since the request was SENT */
inline trust(i) {
#ifdef DEADLINE_FROM_ANSWER
    trusted = told_ticks;
#else
#ifdef RETRY_FULL_LEASE
    told_ticks = (told_ticks > 0 -> LEASE : 0);
#endif
    if
    :: told_ticks > age[i] -> trusted = told_ticks - age[i]
    :: else -> trusted = 0
    fi
#endif
}

inline forget_request(i) { age[i] = LEASE; told_epoch = 0; told_ticks = 0; trusted = 0; about = 0 }

/* The sender stops waiting. The request goes on: executed at any later time, or never; nobody hears the answer */
inline give_up(i, what) {
    give_ups < GIVE_UPS && stray[i] == NOTHING ->
    give_ups++; stray[i] = what; stray_epoch[i] = about; stray_is_current[i] = (what == ACQUIRE);
    forget_request(i)
}

/* The thread that acquires, renews and releases, one request at a time: send | the store executes | the answer comes */
proctype Keeper(byte i) {
    byte about, told_epoch, told_ticks, trusted, other;
    bool locked;
    do
    :: d_step { epoch[i] == 0 && row_epoch < EPOCHS -> age[i] = 0 };
        if
        :: d_step { store_acquire(i, true, told_epoch, told_ticks) };
            d_step {
                if
                :: told_epoch != 0 ->
                    take_new_nonce(i);
                    trust(i);
                    if
                    :: trusted > 0 -> start_term(i, told_epoch)
                    :: else                                               /* a success after the deadline is a loss */
                    fi
                :: else
                fi;
                forget_request(i)
            }
        :: d_step { give_up(i, ACQUIRE) }                                 /* and asks again with the same nonce */
        fi

    :: d_step { epoch[i] != 0 -> about = epoch[i]; age[i] = 0 };
        if
        :: d_step { store_renew(i, about, told_ticks) };
            d_step {
                trust(i);
                if
                :: trusted > 0 && epoch[i] != 0 -> start_term(i, about)
                :: else -> end_term(i)
                fi;
                forget_request(i)
            }
        :: d_step { give_up(i, RENEW) }                                   /* and tries again while its term lasts */
        fi

    :: d_step { epoch[i] != 0 -> about = epoch[i]; end_term(i) };         /* state first, then the store */
        if
        :: d_step { store_release(i, about); forget_request(i) }
        :: d_step { give_up(i, RELEASE) }
        fi
    od
}

#if FENCE == 0
#define GUARD_PASSES(i, e) true
#elif FENCE == 3
#define GUARD_PASSES(i, e) (row_left > 0 && row_holder == ID(i))
#else
#define GUARD_PASSES(i, e) (row_left > 0 && row_holder == ID(i) && row_epoch == e)
#endif

/* The user's code: sees a valid term, opens a fenced transaction, commits it; a pause of any length before each step */
proctype Worker(byte i) {
    byte mine;
    do
    :: d_step { epoch[i] != 0 && left[i] > 0 -> mine = epoch[i] };
        if
        :: d_step { GUARD_PASSES(i, mine) -> tx[i] = OPEN; tx_left[i] = TX_LIMIT };
            d_step {
                if
                :: tx[i] == OPEN ->
                    assert(mine >= written_epoch);                                                   /* C1 */
                    assert(mine != written_epoch || written_by == i + 1);                            /* C2 */
                    written_epoch = mine; written_by = i + 1
                :: else                                                     /* the server ended it: nothing written */
                fi;
                tx[i] = NONE; tx_left[i] = 0; mine = 0
            }
        :: d_step { !(GUARD_PASSES(i, mine)) -> mine = 0 }                  /* LeaseLost */
        fi
    od
}

/* What reaches the store without its sender: stray requests, and the server's own timeout */
proctype Network(byte i) {
    byte other, no_epoch, no_ticks;
    bool locked;
    do
    :: d_step { stray[i] == ACQUIRE -> store_acquire(i, stray_is_current[i], no_epoch, no_ticks); delivered(i) }
    :: d_step { stray[i] == RENEW -> store_renew(i, stray_epoch[i], no_ticks); delivered(i) }
    :: d_step { stray[i] == RELEASE -> store_release(i, stray_epoch[i]); delivered(i) }
    :: d_step { OVERDUE(i) -> tx[i] = KILLED }
    od
}

proctype Clock() {
    byte who, other;
    bool locked;
    do
    :: d_step {
        NOBODY_OVERDUE ->
        row_is_locked();
        if
        :: row_left == 0 && locked -> blocked++; assert(blocked <= LEASE)                            /* C4 */
        :: else -> blocked = 0
        fi;
        locked = false;
        if :: row_left > 1 -> row_left-- :: else -> lapse() fi;
        for (who : 0 .. N - 1) {
            if :: age[who] < LEASE -> age[who]++ :: else fi;
            if :: tx_left[who] > 0 -> tx_left[who]-- :: else fi;
            if
            :: left[who] > 1 -> left[who]--
            :: else -> end_term(who)                                      /* the deadline: no answer brings it back */
            fi
        }
        who = 0
    }
    od
}

init {
    byte k;
    atomic {
        for (k : 0 .. N - 1) { age[k] = LEASE; run Keeper(k); run Worker(k); run Network(k) }
        run Clock()
    }
}
