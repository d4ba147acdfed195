// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockerproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	adapt "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker/dockertest"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/listen"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/mode"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/engine/enginetest"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

const parent = "/kubepods/burstable/podu"

// daemon is a small dockerd on the fake kernel: a container gets its cgroup when it starts, with what its body says of the
// CPU unless careless.
type daemon struct {
	t    *testing.T
	tree *kerneltest.Tree

	mu       sync.Mutex
	records  map[string]map[string]any // by id
	made     int                       // no id comes twice: what is late of a removed container would hit the next
	got      []string                  // "METHOD path"
	careless bool
	broken   bool   // updates fail
	sick     string // the container whose record cannot be read
	deaf     string // the container that outlives a signal
	// dies, when set, cuts the next update, which has been applied or not.
	dies *bool
	// before, when set, is called by a start or a removal before it happens; read by the next question about one container, told once that is
	// answered, and nobody has the answer yet.
	before, read, told atomic.Pointer[func()]
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := d.before.Load(); f != nil && (r.Method == http.MethodDelete || strings.HasSuffix(r.URL.Path, "/start")) {
		(*f)()
	}
	if path := r.URL.Path; strings.HasSuffix(path, "/json") && path != "/containers/json" {
		if f := d.read.Swap(nil); f != nil {
			(*f)()
		}
		if f := d.told.Swap(nil); f != nil {
			defer (*f)()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	d.got = append(d.got, r.Method+" "+r.URL.RequestURI())
	words := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, "/v1.41"), "/"), "/")
	switch {
	case words[0] == "_ping":
		fmt.Fprint(w, "OK")
	case words[0] == "version":
		fmt.Fprint(w, `{"Version":"20.10.24"}`)
	case words[1] == "json":
		var list []map[string]any
		for id := range d.records {
			list = append(list, map[string]any{"Id": id})
		}
		_ = json.NewEncoder(w).Encode(list)
	case words[1] == "create":
		d.made++
		id := fmt.Sprintf("%064x", d.made)
		var in map[string]any
		if err := json.Unmarshal(body, &in); err != nil {
			d.t.Error(err)
		}
		d.records[id] = map[string]any{"Id": id, "Config": in, "HostConfig": in["HostConfig"], "State": map[string]any{"Status": "created"}}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"Id":%q}`, id)
	case d.records[words[1]] == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(d.records, words[1])
		w.WriteHeader(http.StatusNoContent)
	default:
		d.one(w, words[1], words[2], body)
	}
}

func (d *daemon) one(w http.ResponseWriter, id, action string, body []byte) {
	rec := d.records[id]
	host := rec["HostConfig"].(map[string]any)
	dir := parent + "/" + id
	switch action {
	case "json":
		if id == d.sick {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(rec)
		return
	case "start":
		if rec["State"].(map[string]any)["Running"] == true {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		rec["State"] = map[string]any{"Status": "running", "Running": true, "Pid": 4711}
		d.tree.Mkdir(d.t, dir)
		d.cpu(dir, host)
	case "stop", "kill":
		if action == "kill" && id == d.deaf {
			break
		}
		rec["State"] = map[string]any{"Status": "exited"}
		if d.tree.Exists(dir) {
			d.tree.Rmdir(d.t, dir)
		}
	case "update":
		if d.broken {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		cut := d.dies
		if d.dies = nil; cut != nil && !*cut {
			panic(http.ErrAbortHandler)
		}
		var in map[string]any
		_ = json.Unmarshal(body, &in)
		for k, v := range in {
			host[k] = v
		}
		d.cpu(dir, host)
		if cut != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `{}`)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *daemon) cpu(dir string, host map[string]any) {
	if d.careless {
		return
	}
	if q, ok := host["CpuQuota"].(float64); ok && q > 0 {
		d.tree.Set(d.t, dir, "cpu.max", fmt.Sprintf("%d 100000", int(q)))
	}
	if s, ok := host["CpuShares"].(float64); ok && s > 0 {
		d.tree.Set(d.t, dir, "cpu.weight", fmt.Sprint(unit.Quadratic.Weight(unit.Shares(s))))
	}
}

func (d *daemon) host(id, key string) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records[id]["HostConfig"].(map[string]any)[key]
}

func (d *daemon) asked(prefix string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.got {
		if strings.HasPrefix(g, prefix) {
			n++
		}
	}
	return n
}

// rig is the whole way from a client to the daemon, on a fake v2 kernel.
type rig struct {
	*daemon
	*Proxy
	client *http.Client
	hooks  string // the hook directory
	reg    *prometheus.Registry
	book   *enginetest.Journal
	// stop ends the front; ended is closed when it has.
	stop  context.CancelFunc
	ended chan struct{}
}

func newRig(t *testing.T, change ...func(*config.Proxy)) *rig {
	t.Helper()
	dir := dockertest.Dir(t)
	m := enginetest.New(t, "6.12", "/kubepods/burstable")
	d := &daemon{t: t, tree: m.Tree, records: map[string]map[string]any{}}
	dockertest.Serve(t, filepath.Join(dir, "d"), d)

	cfg := config.DefaultProxy()
	cfg.Deadline, cfg.Hooks.Dir = config.Duration(5*time.Second), filepath.Join(dir, "hooks")
	cfg.Hooks.Timeout = config.Duration(time.Minute) // a loaded machine must not make a hook server late
	must(t, os.Mkdir(cfg.Hooks.Dir, 0o700))
	for _, f := range change {
		f(&cfg)
	}
	o := m.Options(t, cfg.Node, Edge{Version: "1"}, "cpuBurstStrategy: {policy: cpuBurstOnly, cpuBurstPercent: 1000}\n",
		plan.CPUBurst, plan.CPUShares, plan.CPUQuota, plan.CPUPeriod, plan.MemoryLimit)
	o.Drift, o.ExitsUntold, o.Join = time.Hour, true, hooks.Join(cfg.Hooks, slog.New(slog.DiscardHandler))
	reg := prometheus.NewRegistry()
	counters, err := metrics.NewEngine(reg, "cri")
	must(t, err)
	o.Metrics = counters
	g := engine.New(o)
	backend := docker.NewBackend(filepath.Join(dir, "d"))
	registry := hooks.New(hooks.Options{Config: cfg.Hooks})
	p := New(Options{
		Options: mode.Options{Config: cfg, Version: "1", Log: o.Log, Metrics: o.Metrics, Engine: g, Hooks: registry},
		Backend: backend, Read: m.Files.Read,
	})
	front, err := docker.New(docker.Options{Backend: filepath.Join(dir, "d"), Handler: p, Registry: g, DecisionTimeout: 2 * time.Minute, Grace: 10 * time.Millisecond, Observe: p.Observe})
	must(t, err)
	pl, err := listen.Unix(filepath.Join(dir, "p"))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Run(ctx, p.Connect) })
	wg.Go(func() { _ = registry.Run(ctx, func(hooks.Snapshot) {}) })
	serving, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	wg.Go(func() { defer close(ended); _ = front.Serve(serving, pl) })
	t.Cleanup(func() { cancel(); wg.Wait(); registry.Close() })
	client := dockertest.Client(t, filepath.Join(dir, "p"))
	<-p.Synced()
	p.Serving()
	return &rig{daemon: d, Proxy: p, client: client, hooks: cfg.Hooks.Dir, reg: reg, book: m.Journal, stop: stop, ended: ended}
}

// afterStart is how many starts were measured whose values came after them, and their seconds.
func (r *rig) afterStart() (starts uint64, seconds float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	must(r.t, err)
	for _, f := range families {
		if f.GetName() == "koord_rt_cri_after_start_seconds" {
			return f.Metric[0].Histogram.GetSampleCount(), f.Metric[0].Histogram.GetSampleSum()
		}
	}
	r.t.Fatal("no such metric")
	return 0, 0
}

// call gives the reply's status and text.
func (r *rig) call(method, path string, body any) (int, string) {
	r.t.Helper()
	data, err := json.Marshal(body)
	must(r.t, err)
	return dockertest.Do(r.t, r.client, method, path, bytes.NewReader(data))
}

// try is a call that may come to nothing.
func (r *rig) try(ctx context.Context, method, path string) {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, nil)
	if err != nil {
		return
	}
	if resp, err := r.client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// do is a call that must be done.
func (r *rig) do(method, path string, body any) string {
	r.t.Helper()
	status, text := r.call(method, path, body)
	if status >= 300 {
		r.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

func (r *rig) id(text string) string {
	r.t.Helper()
	id, err := adapt.ParseCreated([]byte(text))
	must(r.t, err)
	return id
}

// relist has the proxy read the daemon's list.
func (r *rig) relist(first bool) {
	r.t.Helper()
	if missed, err := r.list(r.t.Context(), first); missed || err != nil {
		r.t.Fatal(missed, err)
	}
}

// pod runs a sandbox whose cgroup the kubelet has limited to two CPUs.
func (r *rig) pod(qos string, annotations map[string]string) string {
	r.t.Helper()
	r.tree.Mkdir(r.t, parent)
	r.tree.Set(r.t, parent, "cpu.max", "200000 100000")
	labels := labels(adapt.TypeSandbox, "POD", "")
	labels[protocol.LabelQoSClass] = qos
	for k, v := range annotations {
		labels[adapt.AnnotationPrefix+k] = v
	}
	id := r.id(r.do("POST", "/containers/create?name=a", map[string]any{"Labels": labels, "HostConfig": map[string]any{"CgroupParent": parent}}))
	r.do("POST", "/containers/"+id+"/start", nil)
	return id
}

func labels(kind, name, sandbox string) map[string]string {
	out := map[string]string{
		adapt.LabelType: kind, adapt.LabelPodName: "web", adapt.LabelPodNamespace: "default", adapt.LabelPodUID: "u",
		adapt.LabelContainerName: name,
	}
	if sandbox != "" {
		out[adapt.LabelSandboxID] = sandbox
	}
	return out
}

func body(sandbox string) map[string]any {
	return map[string]any{
		"Labels": labels(adapt.TypeContainer, "app", sandbox), "Env": []string{"A=1", "B=2"},
		"HostConfig": map[string]any{"CgroupParent": parent, "CpuQuota": 100000, "CpuPeriod": 100000, "CpuShares": 1024},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
