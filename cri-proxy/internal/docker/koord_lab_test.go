// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
	"github.com/koord-rt/koord-rt/api/protocol"
	late "github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	lab "github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// koord is a daemon behind the real koord-runtime-proxy. Containers with a quota get a burst; batch resources need no strategy.
type koord struct {
	*lab.Daemon
	t      *testing.T
	proxy  *lab.Proxy
	socket string // the proxy's

	names   map[string]string // of pods, "namespace/name", by their cgroups
	excuses *late.Excuses     // values that a late proxy has excused
}

func newKoord(t *testing.T) *koord {
	t.Helper()
	d, err := lab.Start(t.Context(), lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	k := &koord{Daemon: d, t: t, names: map[string]string{}, excuses: late.NewExcuses()}
	t.Cleanup(func() {
		if err := k.excuses.Err(); err != nil {
			t.Error(err)
		}
	})
	k.proxy, err = d.StartProxy(t.Context(), lab.ProxyOptions{
		Program: "../../../bin/koord-runtime-proxy", Strategy: "cpuBurstStrategy: {policy: auto, cpuBurstPercent: 1000}",
	})
	if err != nil {
		t.Fatal(err)
	}
	k.socket = k.proxy.Socket
	t.Cleanup(func() {
		k.end(syscall.SIGTERM)
		if t.Failed() {
			text := k.proxy.Log()
			t.Logf("koord-runtime-proxy's log:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return k
}

func (k *koord) begin() {
	k.t.Helper()
	if err := k.proxy.Begin(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

func (k *koord) end(sig syscall.Signal) {
	k.t.Helper()
	if err := k.proxy.End(sig); err != nil {
		k.t.Error(err)
	}
}

// eventually is for what comes after an answer: repairs and reconnections.
func (k *koord) eventually(what string, ok func() error) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("%s: %v", what, err)
		}
	}
}

// docker is the client's output through a socket.
func (k *koord) docker(socket string, args ...string) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	out, err := k.Docker(ctx, socket, nil, args...)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// shrink gives a container a smaller quota. The kernel refuses one below the burst that stands, which a late proxy has not lowered in
// time: then the client asks again after a while.
func (k *koord) shrink(p *pod, id, quota string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	k.excuses.Look()
	_, err := k.Docker(ctx, k.socket, nil, "update", "--cpu-quota", quota, id)
	if err != nil && strings.Contains(err.Error(), syscall.EINVAL.Error()) && k.excused(p.parent, err) {
		time.Sleep(time.Second) // what was late may still be under way
		_, err = k.Docker(ctx, k.socket, nil, "update", "--cpu-quota", quota, id)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// knob is one value on both versions: file=value, as in "cpu.shares=512".
type knob struct{ v1, v2 string }

var (
	batchShares = knob{"cpu/cpu.shares=512", "cpu.weight=59"}
	batchPod    = knob{"cpu/cpu.shares=512", "cpu.weight=20"} // the kubelet's linear formula, as its other pods
	batchQuota  = knob{"cpu/cpu.cfs_quota_us=150000", "cpu.max=150000 100000"}
	batchMemory = knob{"memory/memory.limit_in_bytes=268435456", "memory.max=268435456"}
)

func burst(n string) knob { return knob{"cpu/cpu.cfs_burst_us=" + n, "cpu.max.burst=" + n} }

// differs says how a cgroup differs from the knobs; nil when it does not.
func differs(dir string, want ...knob) error {
	tree, err := cgroups.Detect()
	if err != nil {
		return err
	}
	for _, w := range want {
		root, spec := tree.Unified, w.v2
		if !tree.V2() {
			controller, rest, _ := strings.Cut(w.v1, "/")
			root, spec = tree.Controllers[controller], rest
		}
		file, value, _ := strings.Cut(spec, "=")
		if got, err := cgroups.Read(filepath.Join(root, dir), file); err != nil || got != value {
			return fmt.Errorf("%s of %s is %q, want %s (%v)", file, dir, got, value, err)
		}
	}
	return nil
}

// excused tells whether the proxy has logged that it was late with the pod of a cgroup, which excuses err.
func (k *koord) excused(dir string, err error) bool {
	k.t.Helper()
	for parent, name := range k.names {
		if dir == parent || strings.HasPrefix(dir, parent+"/") {
			return k.excuses.Take(k.t, late.Late(k.proxy.Log()), err, name)
		}
	}
	return false
}

// unmarked tells whether a container of a pod that has no mark of ours may lack it: its creation was decided late and went on as it came.
func (k *koord) unmarked(parent, mark string) bool {
	k.t.Helper()
	k.excuses.Look()
	return mark == "" && k.excused(parent, errors.New("a container has no mark"))
}

// holds compares at once: it stands when the client has its answer, or soon where the proxy has logged that it was late.
func (k *koord) holds(when, dir string, want ...knob) {
	k.t.Helper()
	k.excuses.Look()
	err := differs(dir, want...)
	if err != nil && k.excused(dir, fmt.Errorf("%s: %w", when, err)) {
		k.eventually(when, func() error { return differs(dir, want...) })
		return
	}
	if err != nil {
		k.t.Errorf("%s: %v", when, err)
	}
}

// pod is one pod as cri-dockerd would make it.
type pod struct {
	name, uid, parent, sandbox string
	annotations, labels        map[string]string
}

func (k *koord) newPod(name, uid, qos string, labels, annotations map[string]string) *pod {
	k.t.Helper()
	p := &pod{name: name, uid: uid, parent: "/" + k.Cgroup + "/kubepods/" + qos + "pod" + uid, labels: labels, annotations: annotations}
	k.names[p.parent] = "default/" + name
	k.kubelet(p)
	p.sandbox = k.docker(k.socket, p.create(engine.TypeSandbox, "POD")...)
	k.docker(k.socket, "start", p.sandbox)
	return p
}

// kubelet makes the cgroup of a pod that may use two CPUs, before its sandbox, as the kubelet does.
func (k *koord) kubelet(p *pod) {
	k.t.Helper()
	tree, err := cgroups.Detect()
	if err != nil {
		k.t.Fatal(err)
	}
	if tree.V2() || strings.Contains(p.parent, "besteffort") {
		return
	}
	dir := filepath.Join(tree.Controllers["cpu"], p.parent)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("200000"), 0o644)); err != nil {
		k.t.Fatal(err)
	}
}

func (p *pod) create(kind, container string, more ...string) []string {
	args := []string{"create", "--network", "none", "--cgroup-parent", p.parent, "--name", "k8s_" + container + "_" + p.name + "_default_" + p.uid + "_0"}
	label := func(key, value string) { args = append(args, "--label", key+"="+value) }
	label(engine.LabelType, kind)
	label(engine.LabelPodName, p.name)
	label(engine.LabelPodNamespace, "default")
	label(engine.LabelPodUID, p.uid)
	label(engine.LabelContainerName, container)
	if kind == engine.TypeContainer {
		label(engine.LabelSandboxID, p.sandbox)
	} else {
		for key, v := range p.labels {
			label(key, v)
		}
		for key, v := range p.annotations {
			label(engine.AnnotationPrefix+key, v)
		}
	}
	return append(append(args, more...), parts.ImageRef)
}

// container creates and starts one through a socket.
func (k *koord) container(socket string, p *pod, name string, more ...string) (id string) {
	k.t.Helper()
	id = k.docker(socket, p.create(engine.TypeContainer, name, more...)...)
	k.docker(socket, "start", id)
	return id
}

func batchAnnotation(containers ...string) map[string]string {
	list := map[string]any{}
	for _, c := range containers {
		list[c] = map[string]any{
			"limits":   map[string]string{"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "256Mi"},
			"requests": map[string]string{"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "128Mi"},
		}
	}
	text, err := json.Marshal(map[string]any{"containers": list})
	if err != nil {
		panic(err) // not reachable: strings have a JSON form
	}
	return map[string]string{"node.koordinator.sh/extended-resource-spec": string(text)}
}

// TestDockerHostKoord: the real koord-runtime-proxy before a real dockerd. A BE pod runs on its batch resources and an LS pod
// with burst when the client has its answer; updates keep both; kill -9 of the proxy and of dockerd leave no gap that lasts.
func TestDockerHostKoord(t *testing.T) {
	k := newKoord(t)
	be := k.newPod("job", "5c1e0001-0000-4000-8000-000000000001", "besteffort/", map[string]string{"koordinator.sh/qosClass": "BE"}, batchAnnotation("work"))
	work := k.container(k.socket, be, "work", "--cpu-shares", "2", "--env", "PASSWORD="+secret)
	k.holds("after the start", be.parent+"/"+work, batchShares, batchQuota, batchMemory)
	k.holds("after the start", be.parent, batchPod, batchQuota, batchMemory)
	mark := k.docker(k.socket, "inspect", "--format", `{{index .Config.Labels "annotation.`+protocol.AnnotationApplied+`"}}`, work)
	m, err := protocol.ParseApplied(mark)
	if !k.unmarked(be.parent, mark) && (err != nil || !strings.HasPrefix(m.By, "koord-runtime-proxy/") || m.Set["cpu.shares"] != "512 batch" || m.Base["cpu.shares"] != "2") {
		t.Errorf("our mark is %q, %v", mark, err)
	}
	ls := k.newPod("web", "5c1e0007-0000-4000-8000-000000000001", "", map[string]string{"koordinator.sh/qosClass": "LS"}, nil)
	app := k.container(k.socket, ls, "app", "--cpu-quota", "200000", "--cpu-period", "100000")
	k.holds("after the start", ls.parent+"/"+app, burst("200000"))
	k.eventually("burst of the pod", func() error { return differs(ls.parent, burst("200000")) })

	k.docker(k.socket, "update", "--cpu-shares", "3", work)
	k.holds("after an update", be.parent+"/"+work, batchShares, batchQuota, batchMemory)
	k.shrink(ls, app, "100000")
	k.eventually("burst of a smaller quota", func() error {
		return differs(ls.parent+"/"+app, burst("100000"), knob{"cpu/cpu.cfs_quota_us=100000", "cpu.max=100000 100000"})
	})
	t.Run("required", func(t *testing.T) { k.required(t) })
	k.proxyDies(be, ls, work, app)
	k.daemonDies(ls)
	k.ends(be, ls, work, app)
	if strings.Contains(k.proxy.Log(), secret) {
		t.Error("a secret is in the log")
	}
}

// required: a guarantee that could only come after the start is refused, and the node is as before.
func (k *koord) required(t *testing.T) {
	p := k.newPod("strict", "5c1e0009-0000-4000-8000-000000000001", "", map[string]string{"koordinator.sh/qosClass": "LS"},
		map[string]string{protocol.AnnotationRequired: "cpu-burst"})
	_, err := k.Docker(t.Context(), k.socket, nil, p.create(engine.TypeContainer, "app", "--cpu-quota", "200000", "--cpu-period", "100000")...)
	if err == nil || !strings.Contains(err.Error(), "cpu-burst") {
		t.Errorf("a container without its required burst: %v", err)
	}
	k.docker(k.socket, "rm", "--force", p.sandbox)
}

// proxyDies: what happens while the proxy is dead is made good by its next life, which knows the kubelet's values.
func (k *koord) proxyDies(be, ls *pod, work, app string) {
	k.t.Helper()
	k.end(syscall.SIGKILL)
	k.docker(k.Socket, "update", "--cpu-shares", "77", work) // behind the proxy's back
	k.begin()
	k.eventually("repair after a restart", func() error {
		return errors.Join(differs(be.parent+"/"+work, batchShares, batchQuota, batchMemory), differs(ls.parent+"/"+app, burst("100000")))
	})
	k.eventually("all is known again", func() error { // the status follows
		if c := k.proxy.Status().Counters; c["containers"] != 2 || c["pods"] != 2 {
			return fmt.Errorf("rebuilt: %v", c)
		}
		return nil
	})
	k.docker(k.socket, "update", "--cpu-quota", "150000", app)
	k.eventually("update after a restart", func() error { return differs(ls.parent+"/"+app, burst("150000")) })
	k.docker(k.socket, "stop", "--time", "1", work)
	k.docker(k.socket, "start", work)
	k.holds("after a second start", be.parent+"/"+work, batchShares, batchQuota, batchMemory)
}

// daemonDies: containers live on, and the daemon's next life is used without a restart of the proxy.
func (k *koord) daemonDies(ls *pod) {
	k.t.Helper()
	if err := k.Kill(); err != nil {
		k.t.Fatal(err)
	}
	k.eventually("the proxy sees that the daemon is gone", func() error {
		if !k.proxy.Status().ConnectedSince.IsZero() {
			return errors.New("still connected")
		}
		return nil
	})
	// Made while the proxy is held, so before it is connected again: it has to be found by the new list.
	if err := k.proxy.Signal(syscall.SIGSTOP); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = k.proxy.Signal(syscall.SIGCONT) }) // it may be gone when the test has failed
	if err := k.Restart(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	missed := k.container(k.Socket, ls, "missed", "--cpu-quota", "200000", "--cpu-period", "100000")
	if err := k.proxy.Signal(syscall.SIGCONT); err != nil {
		k.t.Fatal(err)
	}
	k.eventually("a container that was missed", func() error { return differs(ls.parent+"/"+missed, burst("200000")) })
	k.eventually("the proxy is connected again", func() error {
		if k.proxy.Status().ConnectedSince.IsZero() {
			return errors.New("not yet")
		}
		return nil
	})
	again := k.container(k.socket, ls, "again", "--cpu-quota", "50000", "--cpu-period", "100000")
	k.holds("after the daemon's restart", ls.parent+"/"+again, burst("50000"))
}

// ends: what is removed is forgotten.
func (k *koord) ends(be, ls *pod, ids ...string) {
	k.t.Helper()
	k.docker(k.socket, append([]string{"stop", "--time", "0"}, ids...)...)
	k.docker(k.socket, append([]string{"rm"}, ids...)...)
	k.docker(k.socket, "rm", "--force", "k8s_missed_web_default_"+ls.uid+"_0", "k8s_again_web_default_"+ls.uid+"_0")
	k.docker(k.socket, "kill", be.sandbox, ls.sandbox)
	k.docker(k.socket, "rm", be.sandbox, ls.sandbox)
	k.eventually("all is forgotten", func() error {
		if c := k.proxy.Status().Counters; c["containers"] != 0 || c["pods"] != 0 {
			return fmt.Errorf("still known: %v", c)
		}
		return nil
	})
}
