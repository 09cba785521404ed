package leasehold

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const secret = "lk_1_geheim"

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func isUsage(err error, says string) bool {
	var wrong *UsageError
	return errors.As(err, &wrong) && strings.Contains(err.Error(), says)
}

func TestATokenGoesUnencryptedToThisMachineAlone(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "token"), secret+"\n")
	for _, with := range []Option{Token(secret), TokenFile(file)} {
		_, err := New("http://127.0.0.1:1,http://10.0.0.2:1", with)
		if !isUsage(err, "http://10.0.0.2:1") || strings.Contains(err.Error(), "geheim") {
			t.Error(err)
		}
		if _, err := New("http://localhost:1,https://10.0.0.2:1", with); err != nil {
			t.Error(err)
		}
		if _, err := New("http://10.0.0.2:1", with, AllowCleartextToken()); err != nil {
			t.Error(err)
		}
	}
	if _, err := New("http://10.0.0.2:1"); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"", "ge heim", "ge\nheim", "geheim\x7f", "gehéim"} {
		if _, err := New("http://127.0.0.1:1", Token(wrong)); !isUsage(err, "token") || strings.Contains(err.Error(), "heim") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestThisMachineIsToldFromWhatOnlyLooksLikeIt(t *testing.T) {
	for _, here := range []string{"127.0.0.1", "127.9.9.9", "[::1]", "LocalHost", "[::ffff:127.0.0.1]"} {
		if !isLoopback("http://" + here + ":1") {
			t.Error(here)
		}
	}
	for _, elsewhere := range []string{"10.0.0.1", "localhost.example", "127.0.0.1.example", "[::2]", "[::ffff:10.0.0.1]"} {
		if isLoopback("http://" + elsewhere + ":1") {
			t.Error(elsewhere)
		}
	}
}

func TestALeaderIsFollowedToAServerThatWasNamedAlone(t *testing.T) {
	plain := &access{servers: []string{"http://a:1", "http://b:1"}}
	pinned := &access{servers: []string{"https://a:1", "http://b:1"}, isPinned: true}
	for _, one := range []struct {
		by                  *access
		current, hint, want string
	}{
		{plain, "http://a:1", "http://b:1/", "http://b:1"},
		{plain, "http://a:1", "b:1", "http://b:1"},
		{plain, "http://a:1", "http://c:1", ""},
		{plain, "http://a:1", "https://b:1", ""},
		{plain, "http://a:1", "", ""},
		{plain, "http://a:1", "http://b:1@c:1", ""},
		{plain, "http://a:1", "b:1/x", ""},
		{pinned, "https://a:1", "c:1", "https://c:1"},
		{pinned, "https://a:1", "http://b:1", ""},
		{pinned, "http://b:1", "https://c:1", ""},
		{pinned, "http://b:1", "https://a:1", "https://a:1"},
		{&access{servers: []string{"https://a:1"}}, "https://a:1", "https://c:1", ""},
	} {
		if got := one.by.leader(one.current, one.hint); got != one.want {
			t.Errorf("%s says %q: %q", one.current, one.hint, got)
		}
	}
}

// door lets in who shows the right token.
type door struct {
	*fake
	mu   sync.Mutex
	good string
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	isKnown := r.Header.Get("Authorization") == "Bearer "+d.good
	d.mu.Unlock()
	if !isKnown {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	d.fake.ServeHTTP(w, r)
}

func (d *door) rotate(good string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good = good
}

func TestTheFileIsReadAgainWhenTheTokenIsNotKnownAnyMore(t *testing.T) {
	ctx, folder := context.Background(), t.TempDir()
	file := write(t, filepath.Join(folder, "token"), "first\n")
	d := &door{fake: newFake(t), good: "first"}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	c := client(t, server.URL, TokenFile(file))
	lease, err := c.Lock("a", WithoutHeartbeat()).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Beside the old one, as whoever replaces a file safely does.
	next := write(t, filepath.Join(folder, "next"), "second\n")
	d.rotate("second")
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	if err := lease.Renew(); err != nil {
		t.Error(err)
	}
	for until := time.Now().Add(5 * time.Second); len(d.of("renew")) == 0; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatal("no renewal was let in")
		}
	}
	if err := lease.ReleaseOnce(ctx); err != nil {
		t.Error(err)
	}
	// Nobody has a better one: the answer is the server's.
	d.rotate("third")
	if _, err := c.Lock("a").Acquire(ctx); CodeOf(err) != "unauthenticated" {
		t.Error(err)
	}
	// A file that is gone for a moment is no reason to forget the token.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d.rotate("second")
	if lease, err := c.Lock("a").Acquire(ctx); err != nil {
		t.Error(err)
	} else if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
}

func TestTheEnvironmentNamesATokenOrItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	t.Setenv("LEASEHOLD_TOKEN_FILE", file)
	if _, err := FromEnv(); !isUsage(err, "cannot be read") {
		t.Error(err)
	}
	write(t, file, "")
	if _, err := FromEnv(); !isUsage(err, "cannot be used") {
		t.Error(err)
	}
	write(t, file, secret)
	c, err := FromEnv()
	if err != nil || c.keeper.access.token.current() != secret {
		t.Fatal(err)
	}
	t.Setenv("LEASEHOLD_TOKEN", "other")
	if _, err := FromEnv(); !isUsage(err, "not both") {
		t.Error(err)
	}
	if c, err := FromEnv(Token("given")); err != nil || c.keeper.access.token.current() != "given" {
		t.Error(err)
	}
	t.Setenv("LEASEHOLD_TOKEN", "")
	t.Setenv("LEASEHOLD_ADDR", "http://10.0.0.2:1")
	if _, err := FromEnv(); !isUsage(err, "unencrypted") {
		t.Error(err)
	}
	t.Setenv("LEASEHOLD_ALLOW_CLEARTEXT_TOKEN", "1")
	if _, err := FromEnv(); err != nil {
		t.Error(err)
	}
	if _, err := New("http://127.0.0.1:1", Token(secret), TokenFile(file)); !isUsage(err, "not both") {
		t.Error(err)
	}
}

func TestATokenIsShownToServersAlone(t *testing.T) {
	c := client(t, newFake(t).URL, Token(secret))
	lease, err := c.Lock("a").Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []any{c, *c, c.config, c.Lock("a"), *c.Lock("a"), lease} {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			if said := fmt.Sprintf(verb, shown); strings.Contains(said, "geheim") {
				t.Errorf("%s of %T: %s", verb, shown, said)
			}
		}
	}
}

func TestTLSIsSpokenWithNamedAuthorities(t *testing.T) {
	f, ctx := newFake(t), context.Background()
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c := client(t, server.URL, TLS(&tls.Config{RootCAs: roots}), Token(secret))
	lease, err := c.Lock("a").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Error(err)
	}
	// The system does not know the authority.
	stranger := client(t, server.URL, Patience(time.Second), Token(secret))
	_, err = stranger.Lock("a").Acquire(ctx)
	if !errors.Is(err, ErrUnreachable) || OutcomeOf(err) != NotApplied || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	if _, err := New(server.URL, CACert(write(t, filepath.Join(t.TempDir(), "ca.pem"), "nothing"))); !isUsage(err, "there are none") {
		t.Error(err)
	}
}

// deposed names a leader, and grants nothing.
func TestALeaderThatWasNotNamedIsNotAskedForAnything(t *testing.T) {
	asked := make(chan string, 16)
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	t.Cleanup(evil.Close)
	deposed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(JSON{"code": "not_leader", "outcome": "not_applied", "leader": evil.URL})
	}))
	t.Cleanup(deposed.Close)
	c := client(t, deposed.URL, Patience(300*time.Millisecond), Token(secret))
	if _, err := c.Lock("a").Acquire(context.Background()); CodeOf(err) != "not_leader" {
		t.Error(err)
	}
	select {
	case path := <-asked:
		t.Error("it was asked for", path)
	default:
	}
}

func TestAServerOfAnotherInterfaceIsRefused(t *testing.T) {
	newer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/version" {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(JSON{"code": "not_found", "outcome": "not_applied"})
			return
		}
		_ = json.NewEncoder(w).Encode(JSON{"api": []string{"v7", "v8"}})
	}))
	t.Cleanup(newer.Close)
	c, ctx := client(t, newer.URL), context.Background()
	for until := time.Now().Add(5 * time.Second); ; {
		_, err := c.Lock("a").Acquire(ctx)
		if isUsage(err, "v7, v8") {
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}
