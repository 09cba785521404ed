package leasehold

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"leasehold.example/sdk/go/machine"
)

// Version is that of this SDK.
const Version = "0.2.0"

const (
	answerBytesMax = 64 << 20
	// keepersMax is how many heartbeats and releases are under way at once, on connections of their own.
	keepersMax = 8
	idleMax    = 64
	idleFor    = 30 * time.Second
)

// noAnswer says that none came, and whether the request may have been carried out.
type noAnswer struct {
	failure machine.Failure
	said    string
}

func (e *noAnswer) Error() string { return e.said }

func (e *noAnswer) unreachable() error {
	outcome := Unknown
	if e.failure == machine.Unsent {
		outcome = NotApplied
	}
	return &UnreachableError{e.said, outcome}
}

// pool is the connections to one server: some for what keeps and ends leases, and others, where requests may wait.
type pool struct {
	server string
	access *access
	dialer *net.Dialer
	keep   *http.Transport
	others *http.Transport
}

func newPool(server string, access *access, connectTimeout time.Duration) *pool {
	p := &pool{server: server, access: access, dialer: &net.Dialer{Timeout: connectTimeout}}
	p.keep, p.others = p.transport(), p.transport()
	p.keep.MaxConnsPerHost = keepersMax
	return p
}

// transport speaks HTTP/1.1 alone: a request that is canceled closes its connection, by which the server knows.
func (p *pool) transport() *http.Transport {
	return &http.Transport{
		DialContext:         p.dialer.DialContext,
		TLSClientConfig:     p.access.tls.Clone(),
		TLSHandshakeTimeout: p.dialer.Timeout,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: idleMax,
		IdleConnTimeout:     idleFor,
		DisableCompression:  true,
	}
}

func (p *pool) close() {
	p.keep.CloseIdleConnections()
	p.others.CloseIdleConnections()
}

// probe connects. Over HTTP there is no connection to speak of: a server that accepts one is there.
func (p *pool) probe(ctx context.Context) error {
	parsed, err := url.Parse(p.server)
	if err != nil {
		return err
	}
	dial := p.dialer.DialContext
	if isProtected(p.server) {
		protected := &tls.Dialer{NetDialer: p.dialer, Config: p.access.tls.Clone()}
		dial = protected.DialContext
	}
	ctx, cancel := context.WithTimeout(ctx, p.dialer.Timeout)
	defer cancel()
	connection, err := dial(ctx, "tcp", parsed.Host)
	if err != nil {
		return err
	}
	return connection.Close()
}

// begin sends a request and returns the answer, whose body is still to be read. If the server does not know the token, and
// there is another one by now, it sends it once more.
func (p *pool) begin(ctx context.Context, one asked, accept string, isReserved bool) (*http.Response, *noAnswer) {
	token := p.access.token.current()
	answer, failure := p.beginAs(ctx, one, accept, isReserved, token)
	if failure != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, failure
	}
	newer := p.access.token.readAgain()
	if newer == token {
		return answer, nil
	}
	answer.Body.Close()
	return p.beginAs(ctx, one, accept, isReserved, newer)
}

func (p *pool) beginAs(ctx context.Context, one asked, accept string, isReserved bool, token string) (*http.Response, *noAnswer) {
	var isSent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isSent.Store(true) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), one.method, p.server+one.path, bytes.NewReader(one.body))
	if err != nil {
		return nil, &noAnswer{machine.Unsent, err.Error()}
	}
	request.Header.Set("User-Agent", "leasehold-go/"+Version)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	if one.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	transport := p.others
	if isReserved {
		transport = p.keep
	}
	answer, err := transport.RoundTrip(request)
	if err == nil {
		return answer, nil
	}
	failure := machine.Unsent
	if isSent.Load() {
		failure = machine.Unknown
	}
	return nil, &noAnswer{failure, fmt.Sprintf("%s: %v", p.server, err)}
}

// send sends a request and returns the whole answer.
func (p *pool) send(ctx context.Context, one asked, isReserved bool) (int, []byte, *noAnswer) {
	answer, failure := p.begin(ctx, one, "", isReserved)
	if failure != nil {
		return 0, nil, failure
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax+1))
	if err != nil || len(body) > answerBytesMax {
		return 0, nil, &noAnswer{machine.Unknown, fmt.Sprintf("%s: the answer cannot be read: %v", p.server, err)}
	}
	return answer.StatusCode, body, nil
}

// waitIn is how long a request of the low-level interface may take beyond others.
func waitIn(path string) time.Duration {
	before, _, _ := strings.Cut(path, "?")
	if strings.Contains(path, "wait_ms=") || strings.HasSuffix(before, "/acquire") {
		return time.Minute
	}
	return 0
}
