package machine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Never is a moment that does not come.
const Never = time.Duration(math.MaxInt64)

// Forever is a wait without an end.
const Forever = Never

// Key names one lease, session or acquire, or one request that was sent. It is never given to another.
type Key struct {
	Place      int
	Generation int
}

func compareKeys(a, b Key) int {
	if a.Place != b.Place {
		return a.Place - b.Place
	}
	return a.Generation - b.Generation
}

// slab holds numbered places that are used again under a new name; the one freed last comes first.
type slab[T any] struct {
	places []place[T]
	free   []int
}

type place[T any] struct {
	generation int
	value      *T
}

func (s *slab[T]) insert(value *T) Key {
	if last := len(s.free) - 1; last >= 0 {
		index := s.free[last]
		s.free = s.free[:last]
		s.places[index].value = value
		return Key{index, s.places[index].generation}
	}
	s.places = append(s.places, place[T]{1, value})
	return Key{len(s.places) - 1, 1}
}

func (s *slab[T]) get(key Key) *T {
	if key.Place >= len(s.places) || s.places[key.Place].generation != key.Generation {
		return nil
	}
	return s.places[key.Place].value
}

func (s *slab[T]) remove(key Key) *T {
	value := s.get(key)
	if value == nil {
		return nil
	}
	s.places[key.Place] = place[T]{key.Generation + 1, nil}
	s.free = append(s.free, key.Place)
	return value
}

func (s *slab[T]) keys() []Key {
	var found []Key
	for index, one := range s.places {
		if one.value != nil {
			found = append(found, Key{index, one.generation})
		}
	}
	return found
}

func (s *slab[T]) len() int { return len(s.places) - len(s.free) }

// State is what a holder may think of its lease.
type State int

const (
	// Valid: the work may go on.
	Valid State = iota
	// InJeopardy: no renewal was confirmed for half of the ttl. Stop now; no other owner can have it yet.
	InJeopardy
	// Lost: it is over. Somebody else may hold the lock.
	Lost
)

func (s State) String() string { return [...]string{"valid", "jeopardy", "lost"}[s] }

// Standing is a lease as far as the client knows it.
//
// The server counts the ttl from when it handled the request, which was after the request was sent. Counted from before
// the sending, the lease ends here earlier than there, however long the answer took.
type Standing struct {
	Since time.Duration
	TTL   time.Duration
}

// counted is the lease that stands for another left of its ttl, in answer to a request sent at sent.
func counted(sent, ttl, left time.Duration) Standing {
	return Standing{sent - max(0, ttl-left), ttl}
}

// JeopardyAt is the moment when the work must stop.
func (s Standing) JeopardyAt() time.Duration { return s.Since + s.TTL/2 }

// LapsesAt is the moment from which another may hold the lock.
func (s Standing) LapsesAt() time.Duration { return s.Since + s.TTL }

func (s Standing) heartbeatAt(part time.Duration) time.Duration { return s.Since + s.TTL/part }

// State is what the lease is at a moment, if nothing else was heard of it.
func (s Standing) State(now time.Duration) State {
	switch {
	case now >= s.LapsesAt():
		return Lost
	case now >= s.JeopardyAt():
		return InJeopardy
	}
	return Valid
}

// Settings say how patient a client is.
type Settings struct {
	// Patience is how long a request is tried before its caller is told that no server could be reached; a wait is no
	// part of it.
	Patience time.Duration
	// AnswerTimeout is how long an answer may take, beyond the wait, before the request is sent again.
	AnswerTimeout  time.Duration
	ConnectTimeout time.Duration
	// BackoffFirst is the pause between two tries: doubled each time, and jittered.
	BackoffFirst time.Duration
	BackoffMax   time.Duration
	// HeartbeatPart is the part of the ttl after which a heartbeat goes out: 3, or 6 to survive longer outages.
	HeartbeatPart time.Duration
}

// DefaultSettings are those of a client that was told nothing else.
func DefaultSettings() Settings {
	return Settings{
		Patience:       10 * time.Second,
		AnswerTimeout:  5 * time.Second,
		ConnectTimeout: 2 * time.Second,
		BackoffFirst:   20 * time.Millisecond,
		BackoffMax:     500 * time.Millisecond,
		HeartbeatPart:  3,
	}
}

// Jitter returns a part of 1024 that a length differs by.
type Jitter func() time.Duration

var (
	// Random lengths differ by chance.
	Random Jitter = func() time.Duration { return time.Duration(rand.IntN(1024)) }
	// Full lengths are as long as they can be, for tests.
	Full Jitter = func() time.Duration { return 1024 }
	// Least lengths are as short as they can be, for tests.
	Least Jitter = func() time.Duration { return 0 }
)

// shortened is between four fifths of the length and all of it: never later than asked.
func (j Jitter) shortened(length time.Duration) time.Duration {
	return length - length/5*(1024-j())/1024
}

// spread is between half of the length and all of it.
func (j Jitter) spread(length time.Duration) time.Duration {
	half := length / 2
	return half + half*j()/1024
}

// doubled grows from first by doubling, up to most.
func doubled(first time.Duration, tries int, most time.Duration) time.Duration {
	return min(first<<min(tries, 16), most)
}

// after is a moment later than now, or Never.
func after(now, length time.Duration) time.Duration {
	if length >= Never-now {
		return Never
	}
	return now + length
}

// Ask is what is asked for, as far as time is concerned: a lease of its own (a session is one that nothing stands under
// yet), or with Session a grant under that session, renewed with it and lost with it.
type Ask struct {
	TTL time.Duration
	// Wait is how long to queue; zero is not at all, Forever without an end.
	Wait    time.Duration
	IsKept  bool
	Session *Key
}

// Kind is the kind of a request: Acquire (always under the same request id for one key), Renew or Release.
type Kind string

const (
	Acquire Kind = "acquire"
	Renew   Kind = "renew"
	Release Kind = "release"
)

// Request is what is to be sent.
type Request struct {
	Kind   Kind
	Wait   time.Duration
	Ticket string
}

// Failure is why no answer came.
type Failure string

const (
	// Unsent requests never left.
	Unsent Failure = "unsent"
	// Unknown requests may have been carried out.
	Unknown Failure = "unknown"
)

// Problem is the part of a refusal that the machine looks at; Said is whatever its reader wants to find again.
type Problem struct {
	Code    string
	Outcome string
	Reason  string
	Ticket  string
	Leader  string
	// RetryAfter is how long the server would wait before it is asked again; less than none if it did not say.
	RetryAfter time.Duration
	Said       any
}

// Answer is one of Granted, Renewed, Released and Refused.
type Answer interface{ isAnswer() }

// Granted says that the lease stands.
type Granted struct{ TTL, Left time.Duration }

// Renewed says that it stands on.
type Renewed struct{ TTL, Left time.Duration }

// Released says that it was given back.
type Released struct{}

// Refused says why not.
type Refused struct{ Problem *Problem }

func (Granted) isAnswer()  {}
func (Renewed) isAnswer()  {}
func (Released) isAnswer() {}
func (Refused) isAnswer()  {}

// News is what is told about a lease that goes on.
type News string

const (
	NewsGranted  News = "granted"
	NewsRenewed  News = "renewed"
	NewsJeopardy News = "jeopardy"
	// NewsGaveUp: no answer came to an acquire. What it may have got is being given back.
	NewsGaveUp News = "gave_up"
)

// Loss is why a lease is lost.
type Loss string

const (
	Lapsed        Loss = "lapse"
	Told          Loss = "server"
	SessionClosed Loss = "session"
)

// End kinds.
const (
	EndRefused           = "refused"
	EndUnreachable       = "unreachable"
	EndLost              = "lost"
	EndReleased          = "released"
	EndNotReleased       = "not_released"
	EndReleaseUnanswered = "release_unanswered"
	// EndForgotten: an abandoned acquire has left nothing behind.
	EndForgotten = "forgotten"
)

// Ended is how something ended. Loss is set where Kind is EndLost.
type Ended struct {
	Kind    string
	Loss    Loss
	Problem *Problem
}

func (e Ended) ofWhatStoodUnder() Ended {
	if e.Kind == EndLost {
		return e
	}
	return Ended{Kind: EndLost, Loss: SessionClosed}
}

// Action is one of Connect, Send, Cancel, Tell and End.
type Action interface{ isAction() }

// Connect asks for a connection to this server; say Up or Down, and let the one before go.
type Connect struct {
	Link    int
	Address string
}

// Send asks for a request to be sent; Answer or Failed must follow, unless the connection breaks.
type Send struct {
	Call    Key
	Key     Key
	Request Request
}

// Cancel says that an answer is of no interest any more. One must follow all the same.
type Cancel struct {
	Call Key
	Key  Key
}

// Tell says that something changed for the one who asked.
type Tell struct {
	Key      Key
	News     News
	Standing Standing
}

// End says that it is over, and that the machine has forgotten the key.
type End struct {
	Key  Key
	Data any
	How  Ended
}

func (Connect) isAction() {}
func (Send) isAction()    {}
func (Cancel) isAction()  {}
func (Tell) isAction()    {}
func (End) isAction()     {}

// learnedMax is more servers than anybody runs: one that lies about the leader fills no memory.
const learnedMax = 16

// servers says which server to talk to.
type servers struct {
	addresses []string
	current   int
}

func (s *servers) rotate() { s.current = (s.current + 1) % len(s.addresses) }

// follow goes to the server that is said to lead; false if it is the one we talk to.
func (s *servers) follow(hint string) bool {
	hint = strings.TrimRight(hint, "/")
	if scheme, _, found := strings.Cut(s.addresses[s.current], "://"); found && !strings.Contains(hint, "://") {
		hint = scheme + "://" + hint
	}
	if at := slices.Index(s.addresses, hint); at >= 0 {
		if at == s.current {
			return false
		}
		s.current = at
		return true
	}
	if len(s.addresses) >= learnedMax {
		return false
	}
	s.addresses = append(s.addresses, hint)
	s.current = len(s.addresses) - 1
	return true
}
