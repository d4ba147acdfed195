// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package trust_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust/trusttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers with what the client said of itself.
func serve(t *testing.T, pair trusttest.Pair, clients *x509.CertPool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := ""
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, r.Proto+" "+r.Header.Get("Authorization")+" "+name)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}}
	if clients != nil {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ask gets the answer's text, or the error's.
func ask(t *testing.T, c *trust.Client, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "error: " + err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + string(body)
}

// put replaces a file the way rotations do.
func put(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func newClient(t *testing.T, o trust.Options) *trust.Client {
	t.Helper()
	c, err := trust.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestWhomWeTrust(t *testing.T) {
	t.Parallel()
	now := time.Now()
	kubelet := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	expired := trusttest.SelfSigned(t, "node-001", now.Add(-48*time.Hour), now.Add(-24*time.Hour))
	other := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	for name, c := range map[string]struct {
		server trusttest.Pair
		o      func(dir string) trust.Options
		want   string
	}{
		"the kubelet's own file pins its certificate": {kubelet, func(dir string) trust.Options {
			return trust.Options{CAFile: put(t, dir+"/kubelet.crt", kubelet.Cert)}
		}, "200 OK HTTP/2.0"},
		"a pinned certificate that has expired": {expired, func(dir string) trust.Options {
			return trust.Options{CAFile: put(t, dir+"/kubelet.crt", expired.Cert)}
		}, "200 OK HTTP/2.0"},
		"an authority needs the right name": {kubelet, func(string) trust.Options {
			return trust.Options{CA: kubelet.Authority, ServerName: "node-001"}
		}, "200 OK HTTP/2.0"},
		"an authority alone does not match the address": {kubelet, func(string) trust.Options {
			return trust.Options{CA: kubelet.Authority}
		}, "error: verify the certificate of 127.0.0.1:"},
		"an authority does not outlive its dates": {expired, func(string) trust.Options {
			return trust.Options{CA: expired.Authority, ServerName: "node-001"}
		}, "error: verify the certificate of 127.0.0.1:"},
		"somebody else with the same name": {other, func(dir string) trust.Options {
			return trust.Options{CAFile: put(t, dir+"/kubelet.crt", kubelet.Cert)}
		}, "error: verify the certificate of 127.0.0.1:"},
		"the system's authorities do not know it": {kubelet, func(string) trust.Options { return trust.Options{} },
			"error: verify the certificate of 127.0.0.1:"},
		"no file": {kubelet, func(dir string) trust.Options { return trust.Options{CAFile: dir + "/kubelet.crt"} },
			"error: read trust anchor: open "},
		"a file without certificates": {kubelet, func(dir string) trust.Options {
			return trust.Options{CAFile: put(t, dir+"/kubelet.crt", []byte("none"))}
		}, "error: read trust anchor "},
		"verification given up": {other, func(string) trust.Options { return trust.Options{SkipVerify: true} }, "200 OK HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.server, nil)
			o := c.o(t.TempDir())
			cl := newClient(t, o)
			if got := ask(t, cl, s.URL); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
			if (cl.Weakness() != "") != o.SkipVerify {
				t.Errorf("weakness %q", cl.Weakness())
			}
		})
	}
}

func TestFilesThatRotate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := t.TempDir()
	first := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	second := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	anchor, token := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "token")
	c := newClient(t, trust.Options{CAFile: anchor, TokenFile: token})
	one, two := serve(t, first, nil), serve(t, second, nil)
	step := func(what, url, want string) {
		t.Helper()
		if got := ask(t, c, url); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	step("no files yet", one.URL, "error: read trust anchor")
	put(t, anchor, first.Cert)
	step("no token yet", one.URL, "error: read token")
	put(t, token, []byte("alpha\n"))
	step("both", one.URL, "200 OK HTTP/2.0 Bearer alpha")
	put(t, token, []byte("gamma\n"))
	step("token renewed", one.URL, "200 OK HTTP/2.0 Bearer gamma")
	put(t, token, []byte(""))
	step("token half written", one.URL, "200 OK HTTP/2.0 Bearer gamma")
	put(t, token, []byte("delta\n"))
	step("not trusted yet", two.URL, "error: verify")
	put(t, anchor, second.Cert)
	step("trusted now", two.URL, "200 OK HTTP/2.0 Bearer delta")
	step("not trusted any more", one.URL, "error: verify")
}

// While one file cannot be read the way stays as it was, but for a newer token, and says so until it can.
func TestFileThatStaysBroken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := t.TempDir()
	pair := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	anchor, token := put(t, filepath.Join(dir, "kubelet.crt"), []byte("half")), put(t, filepath.Join(dir, "token"), []byte("alpha\n"))
	c := newClient(t, trust.Options{CAFile: anchor, TokenFile: token})
	s := serve(t, pair, nil)
	step := func(want, unread string) (since time.Time) {
		t.Helper()
		if got := ask(t, c, s.URL); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		since, err := c.Unread()
		if (err != nil) != (unread != "") || err != nil && !strings.Contains(err.Error(), unread) {
			t.Errorf("unread: %v, want %q", err, unread)
		}
		return since
	}
	step("error: read trust anchor "+anchor, "") // nothing is in force that could be an old one
	put(t, anchor, pair.Cert)
	step("200 OK HTTP/2.0 Bearer alpha", "")
	put(t, anchor, []byte("half"))
	begun := step("200 OK HTTP/2.0 Bearer alpha", "read trust anchor "+anchor)
	put(t, token, []byte("beta\n"))
	if since := step("200 OK HTTP/2.0 Bearer beta", "read trust anchor "+anchor); since != begun {
		t.Errorf("broken since %s and %s", begun, since)
	}
	put(t, token, []byte(""))
	step("200 OK HTTP/2.0 Bearer beta", "read trust anchor "+anchor)
	put(t, token, []byte("gamma\n"))
	put(t, anchor, pair.Cert)
	step("200 OK HTTP/2.0 Bearer gamma", "")
}

// What is given as it is, is wrong at once: nobody will write it anew.
func TestInlineCredentials(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one := trusttest.SelfSigned(t, "one", now.Add(-time.Hour), now.Add(time.Hour))
	two := trusttest.SelfSigned(t, "two", now.Add(-time.Hour), now.Add(time.Hour))
	for want, o := range map[string]trust.Options{
		"":                            {Cert: one.Cert, Key: one.Key, Token: "alpha"},
		"read client certificate: ":   {Cert: one.Cert, Key: two.Key},
		"read client certificate:":    {Cert: one.Cert[:len(one.Cert)/2], Key: one.Key},
		"read token: not a token":     {Token: "al\npha"},
		"a client certificate needs ": {Cert: one.Cert},
	} {
		if _, err := trust.New(o); (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A request that comes when its way has been closed leaves no connection: goleak would see it.
func TestAskedWhenClosed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pair := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.EnableHTTP2, s.TLS = true, &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}}
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if open[c] = true; state == http.StateClosed {
			delete(open, c)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := newClient(t, trust.Options{CA: pair.Cert})
	c.Close()
	if got := ask(t, c, s.URL); !strings.HasPrefix(got, "200 OK") {
		t.Error(got)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		left := len(open)
		mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are left", left)
		}
	}
}

// A kubelet writes its certificate at its first start, which may come after ours: until then the system's authorities count, and no token is
// sent. Once it was there, one that is away is being replaced.
func TestFilesThatMayLack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	dir := t.TempDir()
	kubelet := trusttest.SelfSigned(t, "node-001", now.Add(-time.Hour), now.Add(time.Hour))
	anchor, token := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "token")
	c := newClient(t, trust.Options{CAFile: anchor, TokenFile: token, MayLack: true})
	s := serve(t, kubelet, nil)
	step := func(what, want, also string) {
		t.Helper()
		if got := ask(t, c, s.URL); !strings.HasPrefix(got, want) || !strings.Contains(got, also) {
			t.Errorf("%s: %s, want %s and %q", what, got, want, also)
		}
	}
	step("neither", "error: verify the certificate of 127.0.0.1:", "the system's authorities, for there is no "+anchor)
	put(t, anchor, kubelet.Cert)
	step("no token", "200 OK HTTP/2.0  ", "")
	put(t, token, []byte("alpha\n"))
	step("both", "200 OK HTTP/2.0 Bearer alpha", "")
	for _, path := range []string{token, anchor} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		step("without "+path, "200 OK HTTP/2.0 Bearer alpha", "")
	}
	put(t, anchor, kubelet.Cert)
	put(t, token, []byte("gamma\n"))
	step("both again", "200 OK HTTP/2.0 Bearer gamma", "")
}

func TestWhoWeAre(t *testing.T) {
	t.Parallel()
	now := time.Now()
	server := trusttest.SelfSigned(t, "127.0.0.1", now.Add(-time.Hour), now.Add(time.Hour))
	me := trusttest.SelfSigned(t, "koordlet", now.Add(-time.Hour), now.Add(time.Hour))
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(me.Authority)
	s := serve(t, server, clients)
	// One file with both, as the kubelet keeps its client certificate.
	both := put(t, t.TempDir()+"/client.pem", append(append([]byte{}, me.Cert...), me.Key...))
	c := newClient(t, trust.Options{CA: server.Cert, CertFile: both, KeyFile: both, TokenFile: "/nonexistent/token"})
	if got, want := ask(t, c, s.URL), "200 OK HTTP/2.0  koordlet"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := ask(t, c, s.URL+"/redirect"), "302 Found"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := trust.New(trust.Options{CertFile: both}); err == nil {
		t.Error("a certificate without a key was accepted")
	}
	if _, err := trust.New(trust.Options{CA: []byte("none")}); err == nil {
		t.Error("an authority without a certificate was accepted")
	}
}

func TestTokenNeedsTLS(t *testing.T) {
	t.Parallel()
	c := newClient(t, trust.Options{Token: "secret"})
	if got := ask(t, c, "http://192.0.2.1:10255/pods"); !strings.Contains(got, "not sent without TLS") || strings.Contains(got, "secret") {
		t.Error(got)
	}
}
