// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleKilledBusy kills containerd, and then koord-nri, with a request under way between them: koord-nri has decided and the
// runtime does not hear its answer, and once it hangs in writes into neighbours' cgroups as well. Running containers keep their
// values, what was interrupted can be done again, and in the end everything can be taken back.
func lifecycleKilledBusy(r *rig) {
	b := busy{rig: r, standing: []*kubelet.Running{r.pod(lsPod("busy-ls")), r.pod(bePod("busy-be"))}}
	before, attributes := r.treesOf(b.standing), r.attributesOf(b.standing)
	disk, _ := r.disk()
	r.gated = true
	r.up(everything(disk), nil)
	b.stand("")
	if emulated() { // the request that writes most shows that its kernel makes no difference
		b.startExclusive(b.sandbox(lsrPod("busy-lsr")))
	} else {
		b.runPod()
		b.startExclusive(b.createExclusive())
		b.update()
		b.pluginCreate()
		b.pluginStart()
	}
	for _, run := range b.later {
		if err := r.kube.StopPod(r.t.Context(), run); err != nil {
			r.t.Error(err)
		}
	}
	r.eventually(5*time.Second, b.unclaimed)
	r.stop(syscall.SIGKILL)
	if out, err := r.ctl("restore"); err != nil {
		r.t.Errorf("restore: %v\n%s", err, out)
	}
	for _, d := range differences(before, r.treesOf(b.standing)) {
		if !widest.MatchString(d) {
			r.t.Errorf("after restore: %s", d)
		}
	}
	r.identical("processes after restore", attributes, r.attributesOf(b.standing))
}

// busy is the state of lifecycleKilledBusy: pods that stand through all of it, and those that came meanwhile.
type busy struct {
	*rig
	standing []*kubelet.Running // LS and BE
	later    []*kubelet.Running
}

// stand fails unless the standing pods soon have their values; shared are the CPUs that are left to them, "" for all.
func (b *busy) stand(shared string) {
	b.t.Helper()
	for i, kind := range []string{"LS", "BE"} {
		want := wants(kind, shared)
		if shared == "" { // which cgroup v2 may say with an empty list
			file := map[bool]string{false: "cpuset.effective_cpus", true: "cpuset.cpus.effective"}[b.tree.V2()]
			want = append(want, "main "+file+"="+allCPUs())
		}
		b.soon(5*time.Second, b.standing[i], want)
	}
}

// sandbox runs the sandbox of a pod that goes before the restore.
func (b *busy) sandbox(p kubelet.Pod) *kubelet.Running {
	b.t.Helper()
	run, err := b.kube.RunPod(b.t.Context(), p)
	if err != nil {
		b.t.Fatal(err)
	}
	b.cleanPod(run)
	b.later = append(b.later, run)
	return run
}

// interrupted starts a request, waits until koord-nri has an answer that it cannot give, kills, and returns what the request came to.
func (b *busy) interrupted(kill func(), request func(context.Context) error) error {
	b.t.Helper()
	ended := make(chan error, 1)
	gate := b.gate
	gate.ShutSocket(b.host.NRISocket)
	b.t.Cleanup(gate.Open)
	go func() { ended <- request(b.t.Context()) }()
	b.eventually(4*time.Second, func() error {
		if gate.Sent() == 0 {
			return errors.New("koord-nri has no answer to give")
		}
		return nil
	})
	select {
	case err := <-ended:
		b.t.Fatalf("the request ended before anything was killed: %v", err)
	default:
	}
	kill()
	gate.Open()
	return <-ended
}

// runtimeKilled is interrupted for containerd. It is back when it returns, and connected with the koord-nri that had lived on.
func (b *busy) runtimeKilled(request func(context.Context) error) {
	b.t.Helper()
	pid, before := b.plugin.Process.Pid, b.metric("koord_rt_nri_connects_total")
	err := b.interrupted(func() {
		if err := b.host.Kill(); err != nil {
			b.t.Fatal(err)
		}
	}, request)
	if err == nil {
		b.t.Fatal("the request succeeded: it was not under way when containerd was killed")
	}
	b.meantLate()
	b.now(b.standing[1], withoutProcess(wants("BE", "")))
	if err := b.host.Restart(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.eventually(10*time.Second, func() error {
		// One that was lost while it was slow to register counts, too.
		if n := b.metric("koord_rt_nri_connects_total"); n <= before || b.metric("koord_rt_nri_connected") != 1 {
			return fmt.Errorf("%v connections were made, want more than %v and the last one to stand", n, before)
		}
		return nil
	})
	b.oneConnection()
	if b.plugin.Process.Pid != pid {
		b.t.Error("koord-nri was started anew")
	}
}

// runPod: the sandbox that nobody has heard of goes, as the kubelet makes it go, and the pod comes up.
func (b *busy) runPod() {
	b.t.Helper()
	b.runtimeKilled(func(ctx context.Context) error {
		_, err := b.kube.RunPod(ctx, lsPod("busy-run"))
		return err
	})
	b.stand("")
	b.forget(uid("busy-run"))
	run := b.pod(lsPod("busy-run"))
	b.later = append(b.later, run)
	b.now(run, wants("LS", ""))
}

// forget removes every sandbox of a pod.
func (b *busy) forget(uid string) {
	b.t.Helper()
	ctx := b.t.Context()
	pods, err := b.host.CRI().Pods(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range pods {
		if p.GetMetadata().GetUid() != uid {
			continue
		}
		if err := errors.Join(b.host.CRI().StopPod(ctx, p.GetId()), b.host.CRI().RemovePod(ctx, p.GetId())); err != nil {
			b.t.Error(err)
		}
	}
}

// createExclusive: koord-nri has claimed a CPU for a container that will never be. The neighbours get it back, and the next try has it.
func (b *busy) createExclusive() *kubelet.Running {
	b.t.Helper()
	run := b.sandbox(lsrPod("busy-lsr"))
	b.runtimeKilled(func(ctx context.Context) error {
		_, err := b.kube.CreateContainer(ctx, run, "main")
		return err
	})
	b.eventually(5*time.Second, b.unclaimed)
	b.stand("")
	return run
}

func (b *busy) unclaimed() error {
	if n := b.metric("koord_rt_nri_claimed_cpus"); n != 0 {
		return fmt.Errorf("%v CPUs are claimed, and no container has any", n)
	}
	return nil
}

// startExclusive: the writes that move neighbours off the container's CPU hang, and its start waits for them as long as it may.
func (b *busy) startExclusive(run *kubelet.Running) {
	b.t.Helper()
	_, rest := cpus()
	b.gate.Shut()
	if _, err := b.kube.CreateContainer(b.t.Context(), run, "main"); err != nil {
		b.t.Fatal(err)
	}
	b.runtimeKilled(func(ctx context.Context) error { return b.kube.StartContainer(ctx, run, "main") })
	if !strings.Contains(b.log.String(), "the claimed CPUs are still being freed at start") {
		b.t.Error("the start did not wait for the neighbours")
	}
	b.meantLate()
	// As the kubelet does: containerd cannot start again what it was starting when it died.
	if err := b.host.CRI().RemoveContainer(b.t.Context(), run.Containers["main"]); err != nil {
		b.t.Error(err)
	}
	delete(run.Containers, "main")
	if err := b.kube.StartContainer(b.t.Context(), run, "main"); err != nil {
		b.t.Fatalf("make again what was interrupted: %v", err)
	}
	b.now(run, wants("LSR", ""))
	b.stand(rest)
}

// update: koord-nri believes in a size that the container has never got. The kubelet asks again.
func (b *busy) update() {
	b.t.Helper()
	_, rest := cpus()
	ls := b.standing[0]
	b.runtimeKilled(func(ctx context.Context) error {
		return b.kube.ResizeContainer(ctx, ls, "main", limited("1500m", "128Mi"))
	})
	b.now(ls, []string{"main cpuset.cpus=" + rest})
	for _, step := range []struct {
		cpu   kubelet.Quantity
		quota int
	}{{"1500m", 150000}, {"500m", 50000}} {
		if err := b.resizeMain(ls, limited(step.cpu, "128Mi")); err != nil {
			b.t.Fatalf("resize to %s: %v", step.cpu, err)
		}
		b.soon(5*time.Second, ls, quotaWants(step.quota, 128<<20))
	}
	b.stand(rest)
}

// pluginKilled is interrupted for koord-nri: the runtime goes on without it.
func (b *busy) pluginKilled(request func(context.Context) error) {
	b.t.Helper()
	_, rest := cpus()
	if err := b.interrupted(func() { b.stop(syscall.SIGKILL) }, request); err != nil {
		b.t.Errorf("a request that koord-nri died in: %v", err)
	}
	b.again()
	b.oneConnection()
	b.stand(rest)
}

func (b *busy) pluginCreate() {
	b.t.Helper()
	_, rest := cpus()
	run := b.sandbox(bePod("busy-create"))
	b.pluginKilled(func(ctx context.Context) error {
		_, err := b.kube.CreateContainer(ctx, run, "main")
		return err
	})
	if err := b.kube.StartContainer(b.t.Context(), run, "main"); err != nil {
		b.t.Fatal(err)
	}
	b.soon(5*time.Second, run, wants("BE", rest))
}

func (b *busy) pluginStart() {
	b.t.Helper()
	_, rest := cpus()
	run := b.created(lsPod("busy-start"))
	b.later = append(b.later, run)
	b.pluginKilled(func(ctx context.Context) error { return b.kube.StartContainer(ctx, run, "main") })
	b.soon(5*time.Second, run, wants("LS", rest))
}
