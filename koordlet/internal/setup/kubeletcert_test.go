// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/talk"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust/trusttest"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestKubeletThatNobodyVouchesFor: a kubelet is believed by the certificates of kubelet.caFile, which is its own by default. Another one has neither
// our token nor our ear, and koordctl top says why there are no pods.
func TestKubeletThatNobodyVouchesFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	kubelet, other := trusttest.SelfSigned(t, "node-1", now.Add(-time.Hour), now.Add(time.Hour)), trusttest.SelfSigned(t, "node-1", now.Add(-time.Hour), now.Add(time.Hour))
	for name, c := range map[string]struct {
		anchor []byte // of kubelet.caFile; nil: the default
		// refused is in what is told; "" for a kubelet that is believed.
		refused string
	}{
		"its own certificate":            {kubelet.Cert, ""},
		"its authority":                  {kubelet.Authority, ""},
		"the certificate of another one": {other.Cert, "kubelet.crt"},
		"the authority of another one":   {other.Authority, "kubelet.crt"},
		"the default, not this one's":    {nil, "/var/lib/kubelet/pki/kubelet.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1); r.Header.Get("Authorization") != "Bearer letmein" {
					http.Error(w, "no", http.StatusUnauthorized)
					return
				}
				_, _ = io.WriteString(w, `{"items":[{"metadata":{"uid":"a","namespace":"n","name":"a"},"status":{"phase":"Running"}}]}`)
			}))
			s.TLS = &tls.Config{Certificates: []tls.Certificate{kubelet.TLS(t)}}
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of handshakes that we have ended
			s.StartTLS()
			t.Cleanup(s.Close)

			cfg, dir := off(), t.TempDir()
			cfg.Kubelet.Endpoint, cfg.Kubelet.TokenFile = s.URL, filepath.Join(dir, "token")
			replace(t, cfg.Kubelet.TokenFile, "letmein")
			if c.anchor != nil {
				cfg.Kubelet.CAFile = filepath.Join(dir, "kubelet.crt")
				replace(t, cfg.Kubelet.CAFile, string(c.anchor))
			}
			told, pods := firstAnswer(t, &cfg)
			switch {
			case c.refused == "" && (told.State != status.StateActive || pods != 1):
				t.Errorf("%d pods of a kubelet that is to be believed: %+v", pods, told)
			case c.refused == "":
			case asked.Load() != 0 || pods != 0:
				t.Errorf("it was asked %d times, and has told of %d pods", asked.Load(), pods)
			case told.State != status.StateDegraded || !strings.Contains(told.Reason, "verify the certificate of 127.0.0.1:") || !strings.Contains(told.Reason, c.refused):
				t.Errorf("told %+v, want that its certificate does not go with %s", told, c.refused)
			}
		})
	}
}

// firstAnswer runs who asks for pods until the kubelet has answered or failed: what koordctl then shows of them, and how many there are.
func firstAnswer(t *testing.T, cfg *config.Koordlet) (told status.Source, pods int) {
	t.Helper()
	c, err := newCluster(cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k, err := newPods(cfg, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	for end := time.Now().Add(time.Minute); k.State().Kubelet.Reason == "" && !k.State().Kubelet.OK; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no answer")
		}
	}
	section := talk.New(talk.Options{
		Window: window.New(window.Options{}), Pods: k, Facts: func() *talk.Facts { return &talk.Facts{} }, Now: func() unit.Micros { return 0 },
	}).Status()
	return section.Sources[0], len(k.Snapshot().Pods)
}
