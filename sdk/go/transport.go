package leasehold

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"leasehold.example/sdk/go/machine"
)

// Version is that of this SDK.
const Version = "0.1.0"

const (
	answerBytesMax = 64 << 20
	// keepersMax is how many heartbeats and releases are under way at once, on connections of their own.
	keepersMax = 8
	idleMax    = 64
	idleFor    = 30 * time.Second
)

// access is whom we trust, and as whom we come.
type access struct {
	token string
	tls   *tls.Config
}

func newAccess(token, cacert string, given *tls.Config) (access, error) {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return access{}, usage("the token cannot be used: no header can carry it")
		}
	}
	if given != nil || cacert == "" {
		return access{token, given}, nil
	}
	read, err := os.ReadFile(cacert)
	if err != nil {
		return access{}, usage("the certificates of authorities cannot be read: %v", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read) {
		return access{}, usage("the certificates of authorities cannot be read: there are none in %s", cacert)
	}
	return access{token, &tls.Config{RootCAs: roots}}, nil
}

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
	access access
	dialer *net.Dialer
	keep   *http.Transport
	others *http.Transport
}

func newPool(server string, access access, connectTimeout time.Duration) *pool {
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
	connection, err := p.dialer.DialContext(ctx, "tcp", parsed.Host)
	if err != nil {
		return err
	}
	return connection.Close()
}

// begin sends a request and returns the answer, whose body is still to be read.
func (p *pool) begin(ctx context.Context, one asked, accept string, isReserved bool) (*http.Response, *noAnswer) {
	var isSent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isSent.Store(true) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), one.method, p.server+one.path, bytes.NewReader(one.body))
	if err != nil {
		return nil, &noAnswer{machine.Unsent, err.Error()}
	}
	request.Header.Set("User-Agent", "leasehold-go/"+Version)
	if p.access.token != "" {
		request.Header.Set("Authorization", "Bearer "+p.access.token)
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
