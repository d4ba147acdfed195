// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube/kubetest"
	"github.com/koord-rt/koord-rt/model/topo"
)

// wayTo is the text of a kubeconfig that leads to an API server.
func wayTo(api *kubetest.Server) string {
	return "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: " + api.Trust.Token + "}}]\n" +
		"clusters: [{name: k, cluster: {server: \"" + api.URL + "\", certificate-authority-data: " + base64.StdEncoding.EncodeToString(api.Trust.CA) + "}}]\n"
}

// replace swaps a file in whole, as who rotates one does.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// While a node bootstraps its kubeconfig is written after koordlet has begun: koordlet runs without the API server, tells what it waits for,
// and takes the file up when it is there. The same holds for one that is wrong. Once it was read, a file that goes leaves in force what it said.
func TestKubeconfigThatComesLater(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/nodes"
	first, second := kubetest.New(t), kubetest.New(t)
	for _, api := range []*kubetest.Server{first, second} {
		api.Serve(path)
	}
	first.Put(t, path, `{"metadata":{"name":"node-1","uid":"one"}}`)
	cfg := off()
	file := filepath.Join(t.TempDir(), "kubelet.conf")
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: file}
	var log bytes.Buffer // nothing but ask writes to it: no component runs
	c, err := newCluster(&cfg, "v1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatalf("a kubeconfig that is not there ends the start: %v", err)
	}
	defer c.close()
	ask := func() error {
		_, err := c.client.Get(t.Context(), kube.Nodes, "node-1")
		return err
	}
	for _, step := range []struct {
		name string
		// text of the file, none: it is not there.
		text string
		// answer is what a request comes to: nil for a server that has the node, ErrNotFound for one that has not.
		answer error
		// reason is what source "apiserver" tells; none: it is not told.
		reason string
		// logged at the first of two requests.
		logged string
	}{
		{"not there", "", os.ErrNotExist, "no such file", "level=WARN"},
		{"wrong", "{", nil, "parse", "level=WARN"},
		{"no address", strings.ReplaceAll(wayTo(first), "https://", "ftp://"), nil, "want https://host", "level=WARN"},
		{"there", wayTo(first), nil, "", "level=INFO"},
		{"gone again", "", nil, "no such file", "level=WARN"},
		{"the same again", wayTo(first), nil, "", "level=INFO"},
		{"of another server", wayTo(second), kube.ErrNotFound, "", "level=INFO"},
	} {
		if step.text == "" {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		} else {
			replace(t, file, step.text)
		}
		log.Reset()
		err := ask()
		known := step.reason == "" || step.name == "gone again"
		switch {
		case known && !errors.Is(err, step.answer):
			t.Errorf("%s: %v, want %v", step.name, err, step.answer)
		case !known && (err == nil || !strings.Contains(err.Error(), file) || step.answer != nil && !errors.Is(err, step.answer)):
			t.Errorf("%s: %v, want the file's name and %v", step.name, err, step.answer)
		}
		if text := log.String(); !strings.Contains(text, step.logged) || !strings.Contains(text, file) {
			t.Errorf("%s: logged %q", step.name, text)
		}
		log.Reset()
		if again := ask(); (again == nil) != (err == nil) || log.Len() != 0 {
			t.Errorf("%s, a second time: %v, logged %q", step.name, again, log.String())
		}
		told := c.sources()[0]
		waits := told.Name == "apiserver" && told.State == status.StateDegraded && !told.Since.IsZero() &&
			strings.Contains(told.Reason, file) && strings.Contains(told.Reason, step.reason)
		if waits != (step.reason != "") || !waits && told.Name != "node" {
			t.Errorf("%s: %+v", step.name, told)
		}
	}
}

// TestNodeAfterItsKubeconfig: who follows an object goes on by itself when the way is there.
func TestNodeAfterItsKubeconfig(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/nodes"
	api := kubetest.New(t)
	api.Serve(path)
	api.Put(t, path, `{"metadata":{"name":"node-1","uid":"u"},"status":{"capacity":{"cpu":"4","memory":"8Gi"},"allocatable":{"cpu":"4","memory":"8Gi"}}}`)
	cfg := off()
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: filepath.Join(t.TempDir(), "kubelet.conf")}
	c, err := newCluster(&cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.node.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c.close()
	}()
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v", what, c.sources())
			}
			wait, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			<-wait.Done()
			cancel()
		}
	}
	until("the way is asked for", func() bool { return c.sources()[0].Name == "apiserver" })
	replace(t, cfg.APIServer.Kubeconfig, wayTo(api))
	until("the node is known", func() bool { return c.Node() != nil && c.Node().UID == "u" })
}

// TestServerThatComesBack: what waits for the API server is told when it answers again.
func TestServerThatComesBack(t *testing.T) {
	t.Parallel()
	const path = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
	api := kubetest.New(t)
	api.Put(t, path, `{"metadata":{"name":"node-1","uid":"u","generation":1},"spec":{}}`)
	cfg := off()
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: filepath.Join(t.TempDir(), "kubelet.conf")}
	replace(t, cfg.APIServer.Kubeconfig, wayTo(api))
	c, err := newCluster(&cfg, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	known := make(chan error, 64)
	c.back = func() { known <- c.slo.Observed().Err }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.slo.Run(ctx) }()
	for _, what := range []string{"at first", "after an outage"} {
		select {
		case err := <-known:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: not told, %v", what, c.slo.Observed().Err)
		}
		api.Down(true)
		for c.slo.Observed().Err == nil {
			time.Sleep(time.Millisecond)
		}
		if len(known) != 0 {
			t.Errorf("%s: told of a server that is away", what)
		}
		api.Down(false)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNodeThatCannotBeReadInFull: an annotation that is wrong, or names CPUs that are not online, makes the source of the node degraded until it
// is mended, and is logged once.
func TestNodeThatCannotBeReadInFull(t *testing.T) {
	t.Parallel()
	const path, key = "/api/v1/nodes", "node.koordinator.sh/reservation"
	node := func(more, cpus string) string {
		return `{"metadata":{"name":"node-1","uid":"u","annotations":{"` + key + `":"{\"reservedCPUs\":\"` + cpus + `\"}"` + more + `}}}`
	}
	api := kubetest.New(t)
	cfg := off()
	cfg.APIServer = config.APIServer{Mode: config.APIServerAuto, Kubeconfig: filepath.Join(t.TempDir(), "kubelet.conf")}
	replace(t, cfg.APIServer.Kubeconfig, wayTo(api))
	var text bytes.Buffer // read when nothing runs any more
	c, err := newCluster(&cfg, "v1", slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.cpus = func() topo.CPUSet { return topo.CPUs(0, 1) }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for i, step := range []struct {
		object        string
		annotations   int
		state, reason string
	}{
		{node("", "0-"), 1, status.StateDegraded, "annotations of node node-1 count as absent: " + key + ": reservedCPUs: "},
		{node(`,"koordinator.sh/other":"x"`, "0-"), 2, status.StateDegraded, key},
		{node("", "0-1"), 1, status.StateActive, ""},
		{node("", "0-2"), 1, status.StateDegraded, "CPUs that are not online: " + key + ": 2"},
	} {
		api.Put(t, path, step.object)
		if i == 0 {
			go func() { ended <- c.node.Run(ctx) }()
		}
		var about status.Source
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			seen := len(c.node.Observed().Value.Annotations) // first, so that what is told is not older
			if about = c.sources()[0]; seen == step.annotations && about.State == step.state {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("step %d: %+v", i, about)
			}
		}
		if about.Name != "node" || !strings.Contains(about.Reason, step.reason) {
			t.Errorf("step %d: %+v", i, about)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := strings.Count(text.String(), "cannot read all"); got != 2 {
		t.Errorf("logged %d times: %s", got, text.String())
	}
}
