package leasehold

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// API is the requests of the HTTP interface one by one, with nothing kept alive: for tools. What they take and give is what
// the interface has; see /openapi.json of a server. A request is repeated only if it certainly was not carried out, or only
// reads; for the client's patience at most.
type API struct{ client *Client }

// API is the low-level interface of the client.
func (c *Client) API() API { return API{c} }

// Raw is any request: a path with its query.
func (a API) Raw(ctx context.Context, method, path string, body JSON) (JSON, error) {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return nil, usage("the body cannot be written as JSON: %v", err)
		}
	}
	status, said, err := a.client.keeper.ask(ctx, asked{method, path, encoded})
	if err != nil {
		return nil, err
	}
	return readBody(status, said)
}

func readBody(status int, body []byte) (JSON, error) {
	if status < 200 || status > 299 {
		if problem := readProblem(status, body); problem != nil {
			return nil, problem.kind()
		}
		return nil, unreadable(status)
	}
	if len(body) == 0 {
		return JSON{}, nil
	}
	var read any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&read) != nil {
		return nil, unreadable(status)
	}
	if object, isObject := read.(JSON); isObject {
		return object, nil
	}
	return JSON{"answer": read}, nil
}

func (a API) get(ctx context.Context, path string, query url.Values) (JSON, error) {
	path += a.client.query
	if len(query) > 0 {
		path += "&" + query.Encode()
	}
	return a.Raw(ctx, "GET", path, nil)
}

func (a API) post(ctx context.Context, path string, body JSON) (JSON, error) {
	if body == nil {
		body = JSON{}
	}
	return a.Raw(ctx, "POST", path+a.client.query, body)
}

func (a API) ofLock(ctx context.Context, lock, verb string, body JSON) (JSON, error) {
	if lock == "" {
		return nil, usage("a lock has a name")
	}
	return a.post(ctx, "/v1/locks/"+pathPart(lock)+"/"+verb, body)
}

// Acquire takes one lock; the grant is not kept alive.
func (a API) Acquire(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "acquire", body)
}

// Renew moves the deadline of a grant.
func (a API) Renew(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "renew", body)
}

// Release gives a grant back.
func (a API) Release(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "release", body)
}

// Test says whether a lock could be had now, and who is in the way if not.
func (a API) Test(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "test", body)
}

// Check says whether a fencing token is a current holder's.
func (a API) Check(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "check", body)
}

// Unlock gives back bytes of a file, whatever grants they came from.
func (a API) Unlock(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "unlock", body)
}

// Break ends what is held, for operators.
func (a API) Break(ctx context.Context, lock string, body JSON) (JSON, error) {
	return a.ofLock(ctx, lock, "break", body)
}

// Get is one lock: its state, its holders, who waits.
func (a API) Get(ctx context.Context, lock string) (JSON, error) {
	return a.get(ctx, "/v1/locks/"+pathPart(lock), nil)
}

// List is a page of the locks that are held: prefix, state, owner_id, session_id, page_size, page_token.
func (a API) List(ctx context.Context, query url.Values) (JSON, error) {
	return a.get(ctx, "/v1/locks", query)
}

// AcquireSet takes several locks, all or nothing, under one lease.
func (a API) AcquireSet(ctx context.Context, body JSON) (JSON, error) {
	return a.post(ctx, "/v1/sets/acquire", body)
}

// OpenSession opens a session.
func (a API) OpenSession(ctx context.Context, body JSON) (JSON, error) {
	return a.post(ctx, "/v1/sessions", body)
}

// KeepAlive renews a session, or the lease of a set.
func (a API) KeepAlive(ctx context.Context, session string, body JSON) (JSON, error) {
	return a.post(ctx, "/v1/sessions/"+pathPart(session)+"/keepalive", body)
}

// CloseSession ends a session, or the lease of a set.
func (a API) CloseSession(ctx context.Context, session string) (JSON, error) {
	return a.Raw(ctx, "DELETE", "/v1/sessions/"+pathPart(session)+a.client.query, nil)
}

// BreakSession ends a session by its number, for operators.
func (a API) BreakSession(ctx context.Context, number uint64, body JSON) (JSON, error) {
	return a.post(ctx, fmt.Sprintf("/v1/sessions/%d/break", number), body)
}

// GetSession is one session.
func (a API) GetSession(ctx context.Context, session string) (JSON, error) {
	return a.get(ctx, "/v1/sessions/"+pathPart(session), nil)
}

// ListSessions is a page of the sessions that are open.
func (a API) ListSessions(ctx context.Context, query url.Values) (JSON, error) {
	return a.get(ctx, "/v1/sessions", query)
}

// AcceptFence shows a token to a register; a stale one is refused with a [StaleFenceError].
func (a API) AcceptFence(ctx context.Context, name string, token uint64) (JSON, error) {
	return a.post(ctx, "/v1/fences/"+pathPart(name)+"/accept", JSON{"fencing_token": token})
}

// GetFence is the highest token that a register has seen.
func (a API) GetFence(ctx context.Context, name string) (JSON, error) {
	return a.get(ctx, "/v1/fences/"+pathPart(name), nil)
}

// ListFences is a page of the registers.
func (a API) ListFences(ctx context.Context, query url.Values) (JSON, error) {
	return a.get(ctx, "/v1/fences", query)
}

// DeleteFence removes a register, for operators.
func (a API) DeleteFence(ctx context.Context, name string, body JSON) (JSON, error) {
	return a.Raw(ctx, "DELETE", "/v1/fences/"+pathPart(name)+a.client.query, body)
}

// RemoveInode drops every lock and every waiter of a file that is gone.
func (a API) RemoveInode(ctx context.Context, inode uint64) (JSON, error) {
	return a.Raw(ctx, "DELETE", fmt.Sprintf("/v1/inodes/%d", inode)+a.client.query, nil)
}

// Events is what has happened since a cursor: after, prefix, wait_ms.
func (a API) Events(ctx context.Context, query url.Values) (JSON, error) {
	return a.get(ctx, "/v1/events", query)
}

// Graph is who waits for whom.
func (a API) Graph(ctx context.Context) (JSON, error) { return a.get(ctx, "/v1/graph", nil) }

// History is past holders with their tokens and ends, as far as the server remembers: lock.
func (a API) History(ctx context.Context, query url.Values) (JSON, error) {
	return a.get(ctx, "/v1/history", query)
}

// Token is the grant that carries a fencing token, held or ended, as far as the server remembers.
func (a API) Token(ctx context.Context, token uint64) (JSON, error) {
	return a.get(ctx, fmt.Sprintf("/v1/tokens/%d", token), nil)
}

// Overview is numbers, the longest waits, the leases that end next.
func (a API) Overview(ctx context.Context) (JSON, error) { return a.get(ctx, "/v1/overview", nil) }

// Tree is the locks that are held as a tree: what follows after a prefix, up to the next slash.
func (a API) Tree(ctx context.Context, query url.Values) (JSON, error) {
	return a.get(ctx, "/v1/tree", query)
}

// Limits is the limits of the server.
func (a API) Limits(ctx context.Context) (JSON, error) { return a.Raw(ctx, "GET", "/v1/limits", nil) }

// Cluster is the server that answers, and who leads which group of namespaces.
func (a API) Cluster(ctx context.Context) (JSON, error) { return a.Raw(ctx, "GET", "/v1/cluster", nil) }

// Version is what the server is, and which interfaces it speaks.
func (a API) Version(ctx context.Context) (JSON, error) { return a.Raw(ctx, "GET", "/v1/version", nil) }

// Ready says whether requests for locks are served, and how each part is.
func (a API) Ready(ctx context.Context) (JSON, error) {
	return a.Raw(ctx, "GET", "/readyz?verbose=1", nil)
}

func tokenOf(said any) uint64 {
	number, _ := said.(json.Number)
	var token uint64
	if _, err := fmt.Sscan(strings.TrimSpace(number.String()), &token); err != nil {
		return 0
	}
	return token
}
