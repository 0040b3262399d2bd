/*
 * The states of requests in the serving core, as engine/serve/engine.c moves them: a queue that is
 * always too small, one timeline, clients that submit, cancel and come back, and the end.  Each
 * atomic block is what happens under the lock, so that everything that can come between two of them
 * does; what the engine thread does with its own is one block, too.  tests/serve/model.sh says what
 * is verified.
 *
 * With WRONG=n the model has the n-th fault, which must be found.  With TRACE the model has to do
 * what the engine was seen doing (tests/serve/trace.c), event by event.  What is of no more use is
 * set to zero: fewer states are the same states.
 */
#ifndef WRONG
#define WRONG 0
#endif

#define CLIENTS  3
#define RECORDS  2 /* one runs, one waits: the third client is refused */
#define STEPS    2 /* of an answer, at most */
#ifndef PATIENCE
#define PATIENCE 1 /* PRIORITY_PATIENCE */
#endif
#define NONE     255

#define FREE    0
#define WAITING 1
#define RUNNING 2

/* Kinds of events; an event is its kind times CLIENTS plus the client. */
#define SUBMIT 0
#define REFUSE 1
#define CANCEL 2
#define START  3
#define TOKEN  4
#define END    5

#ifdef TRACE
#include "trace.h" /* TRACE_N and TRACE_EVENTS */
byte script[TRACE_N] = TRACE_EVENTS;
short seen;
#define MAY(kind, who) (seen < TRACE_N && script[seen] == kind * CLIENTS + (who))
#define DID            seen++; assert(seen < TRACE_N) /* fails when the whole trace was followed */
#else
#define MAY(kind, who) (true)
#define DID            skip
#endif

byte state[RECORDS], owner[RECORDS], level[RECORDS], passed[RECORDS];
bool cancel[RECORDS];
byte queue[RECORDS]; /* records, oldest first */
byte waiting, running;
byte timeline = NONE; /* its record */
byte rest;            /* steps that its answer may still take */
bool stopping, down;
bool asked[CLIENTS]; /* has a request in the engine */
byte ends[CLIENTS];  /* of that request */

#define FULL (state[0] != FREE && state[1] != FREE)

/* engine_submit, engine_cancel, and the event that says that it is over. */
proctype client(byte me; byte prio)
{
    byte r;
    do
    :: atomic {
           !stopping && FULL && MAY(REFUSE, me) -> DID
       }
    :: atomic {
           !stopping && !FULL && MAY(SUBMIT, me) -> DID;
           r = (state[0] == FREE -> 0 : 1);
           state[r] = WAITING; owner[r] = me; level[r] = prio;
           queue[waiting] = r; waiting++;
           asked[me] = true
       }
       if
       :: atomic { /* by number: another's request is never hit */
              MAY(CANCEL, me) -> DID;
              if
              :: state[r] != FREE && owner[r] == me -> cancel[r] = true
              :: else
              fi
          }
       :: skip
       fi;
       atomic {
           ends[me] > 0 ->
           assert(ends[me] == 1);
           ends[me] = 0; asked[me] = false; r = 0
       }
    :: atomic { stopping -> break }
    od
}

/* request_finish: the record is free before its owner is told. */
inline finish(record)
{
    atomic {
        told = owner[record];
        assert(state[record] != FREE);
        if
        :: state[record] == RUNNING -> running--
        :: else
        fi;
#if WRONG != 1
        state[record] = FREE;
#endif
        owner[record] = 0; level[record] = 0; passed[record] = 0; cancel[record] = false
    }
    atomic {
        MAY(END, told) -> DID;
        assert(asked[told] && ends[told] == 0);
        ends[told]++;
        told = 0; record = NONE
    }
}

inline close_gap(place)
{
    waiting--;
    for (j : place .. RECORDS - 2) {
        queue[j] = queue[j + 1]
    }
    queue[RECORDS - 1] = 0;
    j = 0
}

/* end_some, the waiting ones: as many as there are places, then the others get their step. */
inline end_waiting()
{
    do
    :: atomic {
           taken = NONE;
#if WRONG != 6
           if
           :: rounds < RECORDS -> rounds++
           :: else -> goto ended
           fi;
#endif
           for (i : 0 .. RECORDS - 1) {
               if
               :: taken == NONE && i < waiting && (cancel[queue[i]] || stopping) ->
                   taken = queue[i]; close_gap(i)
               :: else
               fi
           }
           i = 0;
ended:     skip
       }
       if
       :: atomic { taken == NONE -> rounds = 0; break }
       :: else -> finish(taken)
       fi
    od
}

inline end_running()
{
    atomic {
        taken = NONE;
        if
        :: timeline != NONE && (cancel[timeline] || stopping) ->
            taken = timeline; timeline = NONE; rest = 0
        :: else
        fi
    }
    if
    :: taken != NONE -> finish(taken)
    :: else
    fi
}

/* schedule_first, then start: others may come behind it in between. */
inline admit()
{
    atomic {
        taken = NONE; at = NONE;
        if
        :: timeline == NONE ->
            for (i : 0 .. RECORDS - 1) {
                if
                :: i < waiting && (at == NONE ||
#if WRONG == 2
                   level[queue[i]] > level[queue[at]]) -> at = i
#else
                   level[queue[i]] + passed[queue[i]] / PATIENCE >
                       level[queue[at]] + passed[queue[at]] / PATIENCE) -> at = i
#endif
                :: else
                fi
            }
            taken = (at == NONE -> NONE : queue[at])
        :: else
        fi;
        i = 0
    }
    if
    :: atomic {
           taken != NONE ->
#if WRONG == 3
           at = waiting - 1; /* as if the newest had been chosen */
#endif
           assert(queue[at] == taken && state[taken] == WAITING);
           for (i : 0 .. RECORDS - 1) {
               if /* beyond that much it is first in any case */
               :: i < at && passed[queue[i]] < PATIENCE * 2 -> passed[queue[i]]++
               :: else
               fi
           }
           close_gap(at);
           state[taken] = RUNNING; running++;
           timeline = taken; rest = STEPS; i = 0
       }
       atomic { MAY(START, owner[taken]) -> DID }
    :: else
    fi;
    atomic { taken = NONE; at = NONE }
}

inline step()
{
    if
    :: timeline != NONE ->
        atomic { MAY(TOKEN, owner[timeline]) -> DID; rest-- }
        if
        :: rest > 0 /* another token */
        :: atomic { taken = timeline; timeline = NONE; rest = 0 }
           finish(taken)
        fi
    :: else
    fi
}

proctype engine()
{
    byte i, j, told, rounds, at = NONE, taken = NONE;
    do
#if WRONG == 4
    :: atomic { stopping || running > 0 -> } /* nobody looks at the queue */
#else
    :: atomic { stopping || running > 0 || waiting > 0 -> }
#endif
       if
       :: stopping -> break
       :: else
       fi;
       end_waiting();
       end_running();
       admit();
       step()
    od;
#if WRONG != 5
    end_waiting();
    end_running();
#endif
    down = true
}

init {
    atomic {
        run client(0, 0);
        run client(1, 1);
        run client(2, 1);
        run engine()
    }
#if !FOREVER
    stopping = true;
    down;
    atomic {
        assert(waiting == 0 && running == 0 && state[0] == FREE && state[1] == FREE);
        assert(asked[0] == ends[0] && asked[1] == ends[1] && asked[2] == ends[2])
    }
#endif
}

#if FOREVER
/* Whoever is in the queue or runs is told one day, also the least important one. */
ltl answered { [] (asked[0] -> <> !asked[0]) }
#endif
