// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vm"
)

// withDocker adds Docker to a guest's files where its tests want it: it is large.
func withDocker(t *testing.T, files map[string]string, match string) map[string]string {
	t.Helper()
	if !strings.Contains(match, "Docker") {
		return files
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := docker.Part(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	out := maps.Clone(files)
	for _, name := range docker.Files() {
		out[filepath.Join(dir, name)] = filepath.Join(vm.GuestCache, filepath.Base(dir), name)
	}
	return out
}

const dockedSecret = "hunter2-4711"

// docked is dockerd with the systemd cgroup driver behind koord-runtime-proxy in mode Docker.
type docked struct {
	*docker.Daemon
	t      *testing.T
	proxy  *docker.Proxy
	socket string // the proxy's
	root   string // of the cgroups
	stem   string // the lab's slice without its suffix

	pods    []*dockedPod
	excuses *lab.Excuses // values that a late proxy has excused
}

// TestGuestSystemdDocker: an LSR, an LS and a BE pod by Docker's API, labelled as dockershim and cri-dockerd label them, on
// cgroup v2 under systemd. Their values stand when the client has its answer, after docker update, after a daemon-reload,
// and after kill -9 of the proxy.
func TestGuestSystemdDocker(t *testing.T) {
	k := newDocked(t)
	be := k.pod("job", "5c1e0031-0000-4000-8000-000000000001", "-besteffort", 0, map[string]string{"koordinator.sh/qosClass": "BE",
		engine.AnnotationPrefix + "node.koordinator.sh/extended-resource-spec": `{"containers":{"work":{"limits":{"kubernetes.io/batch-cpu":"1500",` +
			`"kubernetes.io/batch-memory":"256Mi"},"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"128Mi"}}}}`})
	work := k.container(be, "work", map[string]any{"CpuShares": 2, "OomScoreAdj": 1000})
	k.holds("after the start", work, "cpu.max=150000 100000", "memory.max=268435456")
	k.holds("after the start", be.dir, "cpu.max=150000 100000", "memory.max=268435456")

	ls := k.pod("web", "5c1e0031-0000-4000-8000-000000000002", "-burstable", 200, map[string]string{"koordinator.sh/qosClass": "LS"})
	app := k.container(ls, "app", map[string]any{"CpuShares": 512, "CpuQuota": 200000, "CpuPeriod": 100000})
	k.holds("after the start", app, "cpu.max=200000 100000", "cpu.max.burst=200000")

	lsr := k.pod("db", "5c1e0031-0000-4000-8000-000000000003", "", 200, map[string]string{"koordinator.sh/qosClass": "LSR",
		engine.AnnotationPrefix + "scheduling.koordinator.sh/resource-status": `{"cpuset":"4-5"}`})
	pg := k.container(lsr, "pg", map[string]any{"CpuShares": 2048, "CpuQuota": 200000, "CpuPeriod": 100000, "Memory": 64 << 20})
	k.holds("after the start", pg, "cpuset.cpus=4-5", "cpuset.mems=1", "cpu.max=max 100000", "memory.max=67108864")
	for _, dir := range []string{app, work} {
		k.leaves("when the CPUs have an owner", dir, []*dockedPod{lsr}, "cpuset.cpus=0-3,6-7")
	}

	all := func(when, quota string) {
		t.Helper()
		k.eventually(when, func() error {
			return errors.Join(
				// The weight is by the formula of this runc, which the first container has told.
				k.differs(work, "cpu.weight=20", "cpu.max=150000 100000", "memory.max=268435456", "cpuset.cpus=0-3,6-7"),
				k.differs(be.dir, "cpu.weight=20", "cpu.max=150000 100000", "memory.max=268435456"),
				k.differs(app, "cpu.max="+quota+" 100000", "cpu.max.burst="+quota, "cpuset.cpus=0-3,6-7"),
				k.differs(ls.dir, "cpu.max="+quota+" 100000", "cpu.max.burst="+quota),
				k.differs(pg, "cpuset.cpus=4-5", "cpuset.mems=1", "cpu.max=max 100000", "memory.max=67108864"),
				k.differs(lsr.dir, "cpu.max=max 100000"),
			)
		})
	}
	all("everything after the starts", "200000")

	k.shrink(app, "100000")
	k.limit(ls, 100) // as the kubelet: a smaller limit of the pod comes after its containers', a larger one before
	k.docker(k.socket, "update", "--cpu-shares", "3", idIn(work))
	k.holds("after docker update", work, "cpu.max=150000 100000", "memory.max=268435456")
	all("everything after docker update", "100000")

	k.systemctl("daemon-reload")
	all("everything after a daemon-reload", "100000")

	k.end(syscall.SIGKILL)
	k.api(k.Socket, http.MethodPost, "/containers/"+idIn(work)+"/update", map[string]any{"CpuShares": 77}) // behind the proxy's back
	k.begin()
	k.eventually("all is known again", func() error {
		if c := k.proxy.Status().Counters; c["containers"] != 3 || c["pods"] != 3 {
			return fmt.Errorf("rebuilt: %v", c)
		}
		return nil
	})
	late := k.pod("late", "5c1e0031-0000-4000-8000-000000000004", "-burstable", 0, map[string]string{"koordinator.sh/qosClass": "LS"})
	next := k.container(late, "next", map[string]any{"CpuShares": 512})
	k.holds("in the second life", next, "cpuset.cpus=0-3,6-7")
	all("repair after kill -9", "100000") // the new container has told the formula of weights again
	k.limit(ls, 150)
	k.api(k.socket, http.MethodPost, "/containers/"+idIn(app)+"/update", map[string]any{"CpuQuota": 150000})
	all("everything after an update in the second life", "150000")
	k.ends([]string{work, app, pg, next}, be, ls, lsr, late)
	if strings.Contains(k.proxy.Log(), dockedSecret) {
		t.Error("a secret is in the log")
	}
}

// ends removes everything, each pod by itself, and nothing is known any more.
func (k *docked) ends(dirs []string, pods ...*dockedPod) {
	k.t.Helper()
	errs, wg := make([]error, len(dirs)), sync.WaitGroup{}
	for i, dir := range dirs {
		wg.Go(func() {
			for _, id := range []string{idIn(dir), pods[i].sandbox} {
				_, err := k.call(k.socket, http.MethodDelete, "/containers/"+id+"?force=1", nil)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		k.t.Error(err)
	}
	k.eventually("all is forgotten", func() error {
		if c := k.proxy.Status().Counters; c["containers"] != 0 || c["pods"] != 0 {
			return fmt.Errorf("still known: %v", c)
		}
		return nil
	})
}

func newDocked(t *testing.T) *docked {
	t.Helper()
	d, err := docker.Start(t.Context(), docker.Options{SystemdCgroup: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	tree, err := cgroups.Detect()
	if err != nil || !tree.V2() {
		t.Fatalf("this test is for cgroup v2: %+v, %v", tree, err)
	}
	k := &docked{Daemon: d, t: t, root: tree.Unified, stem: strings.TrimSuffix(d.Cgroup, ".slice"), excuses: lab.NewExcuses()}
	t.Cleanup(func() {
		if err := k.excuses.Err(); err != nil {
			t.Error(err)
		}
	})
	k.proxy, err = d.StartProxy(t.Context(), docker.ProxyOptions{
		Program: bin("koord-runtime-proxy"), Strategy: "cpuBurstStrategy: {policy: auto, cpuBurstPercent: 1000}", Patience: patience(shortest),
	})
	if err != nil {
		t.Fatal(err)
	}
	k.socket = k.proxy.Socket
	t.Cleanup(func() {
		k.end(syscall.SIGTERM)
		if t.Failed() {
			daemon, _ := os.ReadFile(d.Log) // beside the failure itself
			t.Logf("koord-runtime-proxy's log:\n%s\ndockerd's log:\n%s", tail(k.proxy.Log(), 6000), tail(string(daemon), 3000))
		}
	})
	return k
}

func (k *docked) begin() {
	k.t.Helper()
	if err := k.proxy.Begin(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

func (k *docked) end(sig syscall.Signal) {
	k.t.Helper()
	if err := k.proxy.End(sig); err != nil {
		k.t.Error(err)
	}
}

func (k *docked) eventually(what string, ok func() error) {
	k.t.Helper()
	for deadline := time.Now().Add(patience(shortest)); ; time.Sleep(50 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("%s: %v", what, err)
		}
	}
}

// differs says how a cgroup differs from FILE=VALUE; nil when it does not.
func (k *docked) differs(dir string, want ...string) error {
	for _, w := range want {
		file, value, _ := strings.Cut(w, "=")
		if got, err := cgroups.Read(filepath.Join(k.root, dir), file); err != nil || got != value {
			return fmt.Errorf("%s of %s is %q, want %s (%v)", file, dir, got, value, err)
		}
	}
	return nil
}

// excused tells whether the proxy has logged that it was late with the pod of a cgroup, or with one of others, which excuses err.
func (k *docked) excused(dir string, err error, others ...*dockedPod) bool {
	k.t.Helper()
	var names []string
	for _, p := range k.pods {
		if slices.Contains(others, p) || dir == p.dir || strings.HasPrefix(dir, p.dir+"/") {
			names = append(names, "default/"+p.name)
		}
	}
	return k.excuses.Take(k.t, lab.Late(k.proxy.Log()), err, names...)
}

// holds compares at once: it stands when the client has its answer, or soon where the proxy has logged that it was late.
func (k *docked) holds(when, dir string, want ...string) {
	k.t.Helper()
	k.leaves(when, dir, nil, want...)
}

// leaves is holds for CPUs that a pod has to leave to others, which may be late.
func (k *docked) leaves(when, dir string, to []*dockedPod, want ...string) {
	k.t.Helper()
	k.excuses.Look()
	err := k.differs(dir, want...)
	if err != nil && k.excused(dir, fmt.Errorf("%s: %w", when, err), to...) {
		k.eventually(when, func() error { return k.differs(dir, want...) })
		return
	}
	if err != nil {
		k.t.Errorf("%s: %v", when, err)
	}
}

func (k *docked) systemctl(args ...string) {
	k.t.Helper()
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		k.t.Fatalf("systemctl %v: %v: %s", args, err, out)
	}
}

// docker runs the client.
func (k *docked) docker(socket string, args ...string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := k.Docker(ctx, socket, nil, args...); err != nil {
		k.t.Fatal(err)
	}
}

// shrink gives a container a smaller quota. The kernel refuses one below the burst that stands, which a late proxy has not lowered in
// time: then the client asks again after a while.
func (k *docked) shrink(dir, quota string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	k.excuses.Look()
	_, err := k.Docker(ctx, k.socket, nil, "update", "--cpu-quota", quota, idIn(dir))
	if err != nil && strings.Contains(err.Error(), syscall.EINVAL.Error()) && k.excused(dir, err) {
		time.Sleep(patience(time.Second)) // what was late may still be under way
		_, err = k.Docker(ctx, k.socket, nil, "update", "--cpu-quota", quota, idIn(dir))
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// api is one call of Docker's API as cri-dockerd makes them; docker's client takes a second of an emulated CPU each time.
func (k *docked) api(socket, method, path string, body any) []byte {
	k.t.Helper()
	reply, err := k.call(socket, method, path, body)
	if err != nil {
		k.t.Fatal(err)
	}
	return reply
}

func (k *docked) call(socket, method, path string, body any) ([]byte, error) {
	var data []byte
	if body != nil { // a start must have none
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://docker/v1.41"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s %s, %v", method, path, resp.Status, text, err)
	}
	return text, nil
}

// dockedPod is one pod as cri-dockerd would make it.
type dockedPod struct {
	name, uid, slice, dir, sandbox string
}

// pod makes a pod's slice, as the kubelet does before it, with a CPU limit in percent where there is one, and its sandbox.
func (k *docked) pod(name, uid, qos string, limit int, labels map[string]string) *dockedPod {
	k.t.Helper()
	p := &dockedPod{name: name, uid: uid, dir: "/" + k.Cgroup, slice: k.stem + "-kubepods" + qos + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"}
	for i, c := range p.slice {
		if c == '-' && i > len(k.stem) {
			p.dir += "/" + p.slice[:i] + ".slice"
		}
	}
	p.dir += "/" + p.slice
	k.pods = append(k.pods, p)
	if limit > 0 {
		k.systemctl("start", p.slice)
		k.limit(p, limit)
	}
	p.sandbox = k.create(p, engine.TypeSandbox, "POD", labels, map[string]any{"CpuShares": 2})
	k.api(k.socket, http.MethodPost, "/containers/"+p.sandbox+"/start", nil)
	return p
}

// limit sets the CPU limit of a pod, in percent of a CPU, which is the kubelet's to write: nobody tells of it.
func (k *docked) limit(p *dockedPod, percent int) {
	k.t.Helper()
	k.systemctl("set-property", "--runtime", p.slice, fmt.Sprintf("CPUQuota=%d%%", percent))
}

// container creates and starts one; dir is its cgroup.
func (k *docked) container(p *dockedPod, name string, host map[string]any) (dir string) {
	k.t.Helper()
	id := k.create(p, engine.TypeContainer, name, map[string]string{engine.LabelSandboxID: p.sandbox}, host)
	k.api(k.socket, http.MethodPost, "/containers/"+id+"/start", nil)
	return p.dir + "/docker-" + id + ".scope"
}

// idIn is the id in a container's cgroup.
func idIn(dir string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "docker-"), ".scope")
}

func (k *docked) create(p *dockedPod, kind, name string, more map[string]string, host map[string]any) (id string) {
	k.t.Helper()
	labels := map[string]string{
		engine.LabelType: kind, engine.LabelContainerName: name, engine.LabelPodName: p.name, engine.LabelPodNamespace: "default",
		engine.LabelPodUID: p.uid,
	}
	maps.Copy(labels, more)
	host["CgroupParent"], host["NetworkMode"] = p.slice, "none"
	reply := k.api(k.socket, http.MethodPost, "/containers/create?name=k8s_"+name+"_"+p.name+"_default_"+p.uid+"_0", map[string]any{
		"Image": parts.ImageRef, "Labels": labels, "Env": []string{"PASSWORD=" + dockedSecret}, "HostConfig": host,
	})
	id, err := engine.ParseCreated(reply)
	if err != nil {
		k.t.Fatal(err)
	}
	return id
}
