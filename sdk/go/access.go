package leasehold

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// tokenAgeMax is how long a token is shown before its file is read again.
	tokenAgeMax   = time.Second
	tokenBytesMax = 64 << 10
)

// access is whom we trust, and as whom we come.
type access struct {
	token   *token
	tls     *tls.Config
	servers []string
	// isPinned: the authorities were named, and are not those of the system.
	isPinned bool
}

func newAccess(servers []string, c *config) (*access, error) {
	token, err := newToken(c.token, c.tokenFile)
	if err != nil {
		return nil, err
	}
	if token.shown != "" && !c.allowsCleartext {
		for _, server := range servers {
			if !isProtected(server) && !isLoopback(server) {
				return nil, usage("%s: the token would be sent unencrypted; use https://", server)
			}
		}
	}
	if c.tls != nil || c.cacert == "" {
		return &access{token, c.tls, servers, c.tls != nil && c.tls.RootCAs != nil}, nil
	}
	read, err := os.ReadFile(c.cacert)
	if err != nil {
		return nil, usage("the certificates of authorities cannot be read: %v", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read) {
		return nil, usage("the certificates of authorities cannot be read: there are none in %s", c.cacert)
	}
	return &access{token, &tls.Config{RootCAs: roots}, servers, true}, nil
}

// leader is the leader that the server in use names, if it may be followed there: to a server that was named, or over TLS to
// one that a named authority has signed. Nothing leads from https to http.
func (a *access) leader(current, hint string) string {
	if !strings.Contains(hint, "://") {
		scheme, _, _ := strings.Cut(current, "://")
		hint = scheme + "://" + hint
	}
	server, err := parseServer(hint)
	if err != nil || (isProtected(current) && !isProtected(server)) {
		return ""
	}
	if isVouchedFor := a.isPinned && isProtected(current); isVouchedFor || slices.Contains(a.servers, server) {
		return server
	}
	return ""
}

// token is a secret, or the file that it is read from: again now and then, and when a server does not know it.
type token struct {
	mu     sync.Mutex
	shown  string
	file   string
	readAt time.Time
}

func newToken(given, file *string) (*token, error) {
	t := &token{readAt: time.Now()}
	switch {
	case given != nil && file != nil:
		return nil, usage("give a token or a file with one, not both")
	case given != nil:
		t.shown = *given
	case file != nil:
		t.file = *file
		read, err := readToken(t.file)
		if err != nil {
			return nil, usage("the file with the token cannot be read: %v", err)
		}
		t.shown = read
	default:
		return t, nil
	}
	if !isSendable(t.shown) {
		return nil, usage("the token cannot be used: no header can carry it")
	}
	return t, nil
}

// current is the token to show now; nothing if there is none.
func (t *token) current() string {
	t.mu.Lock()
	isOld := t.file != "" && time.Since(t.readAt) >= tokenAgeMax
	shown := t.shown
	t.mu.Unlock()
	if isOld {
		return t.readAgain()
	}
	return shown
}

// readAgain is the token that the file has now. A file that is just being replaced changes nothing.
func (t *token) readAgain() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" {
		return t.shown
	}
	t.readAt = time.Now()
	if read, err := readToken(t.file); err == nil && isSendable(read) {
		t.shown = read
	}
	return t.shown
}

func readToken(file string) (string, error) {
	opened, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	read, err := io.ReadAll(io.LimitReader(opened, tokenBytesMax))
	return strings.TrimSpace(string(read)), err
}

func isSendable(token string) bool {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return token != ""
}

// isProtected says whether TLS is spoken to it.
func isProtected(server string) bool { return strings.HasPrefix(server, "https://") }

// isLoopback says whether the server is on this machine, so that no other can listen on the way.
func isLoopback(server string) bool {
	_, authority, _ := strings.Cut(server, "://")
	host, _, err := net.SplitHostPort(authority)
	return err == nil && (strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback())
}
