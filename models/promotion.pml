/* Promotions that lose commits: what keeps epochs apart when a standby without the last grants takes over, twice in a row.

   Claims, each an assertion:
     P1  no epoch is granted twice, on whatever server
     P2  a grant of the newest primary is above every epoch that any server granted before

   Each server has a copy of the row: its epoch, and the timeline on which that was granted (0: there is no row). A standby gets
   the row of the newest primary at any time, or not at all: what it lacks when it is promoted is lost. The primary before
   it is dead from then on, or grants on (a split). A server that is no primary any more may come back as a standby. A lease
   lapses at any time. So does a grant come at any time; a renewal is a step of its own, because it must change nothing.

   Timelines begin at 1, where the table was made. JUMP stands for a million: nobody grants that many epochs unseen.

   Switches. All but NODES, TIMELINES and GRANTS plant a fault, and the check must then fail.
     -DNO_JUMP             every grant is + 1
     -DJUMP_ONCE           the first grant on another timeline jumps once, however many timelines lie between
     -DBORN_AT_1           a name without a row starts at 1 on every timeline
     -DRENEWAL_RECORDS     a renewal writes its own timeline into the row
     -DTIMELINES_REPEAT    a promoted standby counts on from the timelines that it knows itself
     -DP2_IN_A_SPLIT       P2 is claimed of a primary before, too, that grants on: it grants below the jump */

#ifndef NODES
#define NODES 3
#endif
#ifndef TIMELINES
#define TIMELINES 4     /* three promotions in a row */
#endif
#ifndef GRANTS
#define GRANTS 3        /* on each timeline */
#endif
#define JUMP 8
#define EPOCHS 64       /* more than any grant here can come to */

/* Each server's copy of the row, the timeline it writes on (or followed last), whether it takes writes */
byte epoch[NODES], granted_on[NODES], timeline[NODES];
bool writes[NODES];

byte newest = 1, primary = 0;       /* the newest timeline, and who writes on it */
byte grants[TIMELINES + 1];
bool given[EPOCHS];
byte highest;

inline distance(n, from) {
#ifdef NO_JUMP
    far = 0;
#else
    far = (timeline[n] == from -> 0 : timeline[n] - from);
#ifdef JUMP_ONCE
    far = (far > 0 -> 1 : 0);
#endif
#endif
}

/* acquire: the first one counts from where the table was made, the others from where the row was granted */
inline grant(n) {
    grants[timeline[n]]++;
    if
    :: granted_on[n] == 0 ->
#ifdef BORN_AT_1
        far = 0;
#else
        distance(n, 1);
#endif
        epoch[n] = 1 + JUMP * far
    :: else ->
        distance(n, granted_on[n]);
        epoch[n] = (far == 0 -> epoch[n] + 1 : epoch[n] + JUMP * far)
    fi;
    granted_on[n] = timeline[n];
    far = 0;
    assert(!given[epoch[n]]);                                                                        /* P1 */
#ifdef P2_IN_A_SPLIT
    assert(epoch[n] > highest);
#else
    assert(n != primary || epoch[n] > highest);                                                      /* P2 */
#endif
    given[epoch[n]] = true;
    highest = (epoch[n] > highest -> epoch[n] : highest)
}

inline follow(n) { epoch[n] = epoch[primary]; granted_on[n] = granted_on[primary]; timeline[n] = timeline[primary] }

inline promote(n) {
    newest++;
#ifdef TIMELINES_REPEAT
    timeline[n]++;
#else
    timeline[n] = newest;
#endif
    writes[n] = true; primary = n
}

proctype Server(byte n) {
    byte far, other;
    do
    :: d_step { writes[n] && grants[timeline[n]] < GRANTS -> grant(n) }
    :: d_step { writes[n] && granted_on[n] != 0 ->                        /* the row is live and its holder renews it */
#ifdef RENEWAL_RECORDS
        granted_on[n] = timeline[n]
#else
        skip
#endif
        }
    :: d_step { !writes[n] -> follow(n) }                                 /* what was committed by now has come over */
    :: d_step { writes[n] && n != primary -> writes[n] = false; follow(n) }  /* back, as a standby of the newest */
    :: d_step { !writes[n] && newest < TIMELINES ->                       /* the primary dies, and this one takes over */
            for (other : 0 .. NODES - 1) { writes[other] = false }
            other = 0; promote(n)
        }
    :: d_step { !writes[n] && newest < TIMELINES -> promote(n) }          /* the one before it goes on: a split */
    od
}

init {
    byte k;
    atomic {
        writes[0] = true;
        for (k : 0 .. NODES - 1) { timeline[k] = 1; run Server(k) }
    }
}
