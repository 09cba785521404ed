package leasehold

import (
	"encoding/json"
	"strings"
	"time"

	"leasehold.example/sdk/go/machine"
)

// httpWaitMax: over HTTP the server waits no longer in one request; a ticket keeps the place for the next.
const httpWaitMax = 50 * time.Second

// JSON is a body of the interface. Numbers in answers are json.Number.
type JSON = map[string]any

// Claim is one lock of a set. Mode is "exclusive" if empty, or "shared".
type Claim struct {
	Lock    string `json:"lock"`
	Mode    string `json:"mode,omitempty"`
	Permits int    `json:"permits,omitempty"`
}

type form int

const (
	formLock form = iota
	formSet
	formSession
)

// grant is what the server said about a grant, beside how long it stands.
type grant struct {
	leaseID  string
	token    uint64
	lock     string
	waited   time.Duration
	replayed bool
	epoch    uint64
	number   uint64
}

// payload is everything that does not change between two tries.
type payload struct {
	form      form
	claims    []Claim
	owner     string
	requestID string
	ttl       time.Duration
	session   string
	reclaim   time.Duration
	metadata  JSON
	query     string
}

type asked struct {
	method, path string
	body         []byte
}

func post(path string, body JSON) asked {
	// Everything in it is text, numbers, and what came through checkMetadata.
	encoded, _ := json.Marshal(body)
	return asked{"POST", path, encoded}
}

// asks is the request, or several that do it together.
func (p *payload) asks(request machine.Request, g grant) []asked {
	switch {
	case request.Kind == machine.Acquire:
		return []asked{p.acquire(request)}
	case request.Kind == machine.Release && p.form == formSet && p.session != "":
		var all []asked
		for _, claim := range partsToRelease(p.claims) {
			all = append(all, p.ofLock(claim.Lock, "release", g))
		}
		return all
	case p.form == formLock && request.Kind == machine.Release:
		return []asked{p.ofLock(p.claims[0].Lock, "release", g)}
	case p.form == formLock:
		return []asked{p.ofLock(p.claims[0].Lock, "renew", g)}
	case request.Kind == machine.Renew:
		return []asked{post("/v1/sessions/"+pathPart(g.leaseID)+"/keepalive"+p.query, JSON{})}
	}
	return []asked{{"DELETE", "/v1/sessions/" + pathPart(g.leaseID) + p.query, nil}}
}

func (p *payload) ofLock(lock, verb string, g grant) asked {
	body := JSON{"owner_id": p.owner, "lease_id": g.leaseID, "fencing_token": g.token}
	return post("/v1/locks/"+pathPart(lock)+"/"+verb+p.query, body)
}

func (p *payload) acquire(request machine.Request) asked {
	body := JSON{"owner_id": p.owner, "request_id": p.requestID}
	if p.metadata != nil {
		body["metadata"] = p.metadata
	}
	if p.ttl > 0 || p.session == "" {
		body["ttl_ms"] = inMillis(p.ttl)
	}
	if p.form == formSession {
		body["on_disconnect"] = "release"
		return post("/v1/sessions"+p.query, body)
	}
	body["wait_ms"] = inMillis(min(request.Wait, httpWaitMax))
	if p.session != "" {
		body["session_id"] = p.session
	}
	if p.reclaim > 0 {
		body["reclaim_ms"] = inMillis(p.reclaim)
	}
	if request.Ticket != "" {
		body["ticket"] = request.Ticket
	}
	if p.form == formSet {
		body["locks"] = p.claims
		return post("/v1/sets/acquire"+p.query, body)
	}
	if p.claims[0].Mode != "" {
		body["mode"] = p.claims[0].Mode
	}
	if p.claims[0].Permits != 0 {
		body["permits"] = p.claims[0].Permits
	}
	return post("/v1/locks/"+pathPart(p.claims[0].Lock)+"/acquire"+p.query, body)
}

// partsToRelease is what of a set must be named to give back all of it while its session goes on: with a name or a path
// everything under the same token ends, bytes of files are given back one by one.
func partsToRelease(claims []Claim) []Claim {
	for _, claim := range claims {
		if !strings.HasPrefix(claim.Lock, "inode:") {
			return []Claim{claim}
		}
	}
	return claims
}

// read is what an answer says; nil if it cannot be read. With a grant comes what is to be kept of it.
func (p *payload) read(request machine.Request, status int, body []byte) (machine.Answer, *grant) {
	if status < 200 || status > 299 {
		if problem := readProblem(status, body); problem != nil {
			return machine.Refused{Problem: problem.forMachine()}, nil
		}
		return nil, nil
	}
	if request.Kind == machine.Release {
		return machine.Released{}, nil
	}
	var said struct {
		TTL       *int64 `json:"ttl_ms"`
		Left      *int64 `json:"expires_in_ms"`
		LeaseID   string `json:"lease_id"`
		SessionID string `json:"session_id"`
		Token     uint64 `json:"fencing_token"`
		Lock      string `json:"lock"`
		Waited    int64  `json:"waited_ms"`
		Replayed  bool   `json:"replayed"`
		Epoch     uint64 `json:"epoch"`
		Number    uint64 `json:"session"`
	}
	if err := json.Unmarshal(body, &said); err != nil || said.TTL == nil || said.Left == nil {
		return nil, nil
	}
	ttl, left := millis(*said.TTL), millis(*said.Left)
	if request.Kind == machine.Renew {
		return machine.Renewed{TTL: ttl, Left: left}, nil
	}
	id := said.LeaseID
	if p.form == formSession {
		id = said.SessionID
	}
	if id == "" {
		return nil, nil
	}
	return machine.Granted{TTL: ttl, Left: left}, &grant{id, said.Token, said.Lock, millis(said.Waited), said.Replayed, said.Epoch, said.Number}
}
