// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// between is a rig whose runtime can be held in the middle of a call.
type between struct {
	*viaProxy
	slow, entered string // files: runc's create waits while the first exists, and a moment more, and makes the second
}

// TestHostProxyKilledBetween kills the proxy after it has forwarded a request and before the answer, and compares with a
// kubelet that is killed at the same point without a proxy: what is left right after, and after the kubelet's retry.
func TestHostProxyKilledBetween(t *testing.T) { killedBetween(t) }

// TestGuestProxyKilledBetween is the same in a VM.
func TestGuestProxyKilledBetween(t *testing.T) { killedBetween(t) }

func killedBetween(t *testing.T) {
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	runc, err := cache.File(t.Context(), parts.Runc, "runc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := &between{slow: filepath.Join(dir, "slow"), entered: filepath.Join(dir, "entered")}
	// runc is held until the kill has been made, however long that takes, and a moment more, in which containerd sees that its client
	// has gone: kept long, since else it is a starved machine that decides who is faster. A test that has died does not hold it for ever.
	script := fmt.Sprintf(`#!/bin/sh
if [ -e %[1]s ]; then case " $* " in *" create "*)
	touch %[2]s
	n=0; while [ -e %[1]s ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done
	sleep %[3]d;;
esac; fi
exec %[4]s "$@"
`, b.slow, b.entered, sees/time.Second, runc)
	wrapper := filepath.Join(dir, "runc")
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	b.viaProxy = newProxyRig(t, rigOptions{nri: host.Options{DisableNRI: true, RuncPath: wrapper, Cache: cache}})
	b.upProxy(standard, nil)
	for i, point := range betweenPoints {
		t.Run(point.name, func(t *testing.T) {
			sub := *b
			sub.viaProxy = &viaProxy{}
			*sub.viaProxy = *b.viaProxy
			r := *b.rig
			r.t, sub.rig = t, &r
			// Whether a runtime still does a call whose client has gone is a race inside of it, both ways. So the least of three cuts
			// through the proxy is compared with the most of ten without it; the first pair is enough where the proxy's is not more.
			// A race of one in four, the worst, is taken for the proxy's doing once in a thousand times.
			const proxiedCuts, directCuts = 3, 10
			proxied := sub.cut(point, fmt.Sprintf("cut-%d-proxy", i), true)
			b.cmd, b.exited = sub.cmd, sub.exited
			direct := map[string]int{}
			for n := range directCuts {
				for what, left := range sub.cut(point, fmt.Sprintf("cut-%d-direct-%d", i, n), false) {
					direct[what] = max(direct[what], left)
				}
				if len(more(proxied, direct)) == 0 {
					break
				}
			}
			for n := 1; n < proxiedCuts && len(more(proxied, direct)) > 0; n++ {
				for what, left := range sub.cut(point, fmt.Sprintf("cut-%d-proxy-%d", i, n), true) {
					proxied[what] = min(proxied[what], left)
				}
				b.cmd, b.exited = sub.cmd, sub.exited
			}
			t.Logf("left right after the kill: direct %v, proxy %v", direct, proxied)
			for _, what := range more(proxied, direct) {
				t.Errorf("%d %s or more are left through the proxy in each of %d cuts, at most %d without it in %d",
					proxied[what], what, proxiedCuts, direct[what], directCuts)
			}
		})
	}
}

// sees is how long a containerd without a CPU may take to see that its client has gone.
const sees = 5 * time.Second

// more is what there is more of in a than in b.
func more(a, b map[string]int) (what []string) {
	for k, n := range a {
		if n > b[k] {
			what = append(what, k)
		}
	}
	return what
}

// betweenPoint is a call to be cut.
type betweenPoint struct {
	name string
	// frozen stops containerd; else runc is slow.
	frozen bool
	// before brings a pod to the point; call is cut.
	before func(ctx context.Context, k *kubelet.Kubelet, p kubelet.Pod) (*kubelet.Running, error)
	call   func(ctx context.Context, k *kubelet.Kubelet, c *cri.Client, run *kubelet.Running, p kubelet.Pod) error
	// again: what was cut leaves a container that runs, and the kubelet makes the same call once more.
	again bool
}

func noPod(context.Context, *kubelet.Kubelet, kubelet.Pod) (*kubelet.Running, error) { return nil, nil }

func withSandbox(ctx context.Context, k *kubelet.Kubelet, p kubelet.Pod) (*kubelet.Running, error) {
	return k.RunPod(ctx, p)
}

func withCreated(ctx context.Context, k *kubelet.Kubelet, p kubelet.Pod) (*kubelet.Running, error) {
	run, err := k.RunPod(ctx, p)
	if err == nil {
		_, err = k.CreateContainer(ctx, run, "main")
	}
	return run, err
}

func withStarted(ctx context.Context, k *kubelet.Kubelet, p kubelet.Pod) (*kubelet.Running, error) {
	return k.StartPod(ctx, p)
}

func runPodCall(ctx context.Context, k *kubelet.Kubelet, _ *cri.Client, _ *kubelet.Running, p kubelet.Pod) error {
	_, err := k.RunPod(ctx, p)
	return err
}

func createCall(ctx context.Context, k *kubelet.Kubelet, _ *cri.Client, run *kubelet.Running, _ kubelet.Pod) error {
	_, err := k.CreateContainer(ctx, run, "main")
	return err
}

func startCall(ctx context.Context, k *kubelet.Kubelet, _ *cri.Client, run *kubelet.Running, _ kubelet.Pod) error {
	return k.StartContainer(ctx, run, "main")
}

// updateCall is the kubelet's own values of a BE container, as its CPU manager sends them.
func updateCall(ctx context.Context, _ *kubelet.Kubelet, c *cri.Client, run *kubelet.Running, _ kubelet.Pod) error {
	return c.UpdateContainer(ctx, run.Containers["main"], &runtimeapi.LinuxContainerResources{CpuShares: 2, CpusetCpus: allCPUs()})
}

func stopCall(ctx context.Context, _ *kubelet.Kubelet, c *cri.Client, run *kubelet.Running, _ kubelet.Pod) error {
	return c.StopContainer(ctx, run.Containers["main"], 0)
}

func removePodCall(ctx context.Context, _ *kubelet.Kubelet, c *cri.Client, run *kubelet.Running, _ kubelet.Pod) error {
	return c.RemovePod(ctx, run.SandboxID)
}

var betweenPoints = []betweenPoint{
	{name: "RunPodSandbox", before: noPod, call: runPodCall},
	{name: "RunPodSandboxFrozen", frozen: true, before: noPod, call: runPodCall},
	{name: "CreateContainerFrozen", frozen: true, before: withSandbox, call: createCall},
	{name: "StartContainer", before: withCreated, call: startCall},
	{name: "StartContainerFrozen", frozen: true, before: withCreated, call: startCall},
	{name: "UpdateContainerResourcesFrozen", frozen: true, before: withStarted, call: updateCall, again: true},
	{name: "StopContainerFrozen", frozen: true, before: withStarted, call: stopCall},
	{name: "RemovePodSandboxFrozen", frozen: true, before: withStarted, call: removePodCall},
}

// cut brings a pod to the point, kills whoever is connected to the runtime in the middle of the call, and returns what is
// left. Then the kubelet tries again, which must succeed, and removes the pod, after which nothing is left.
func (b *between) cut(point betweenPoint, name string, proxied bool) map[string]int {
	b.t.Helper()
	ctx := b.t.Context()
	socket := b.host.Socket
	if proxied {
		socket = b.socket
	}
	client := b.dial(socket)
	b.kube.Through(client)
	pod := bePod(name)
	before := b.leftovers()
	run, err := point.before(ctx, b.kube, pod)
	if err != nil {
		b.t.Fatal(err)
	}
	release := b.hold(point.frozen)
	pending := b.pending()
	done := make(chan error, 1)
	go func() { done <- point.call(ctx, b.kube, client, run, pod) }()
	b.inside(point.frozen, pending)
	if proxied {
		b.crash()
	} else {
		_ = client.Close() // with a call under way
	}
	release()
	if err := <-done; err == nil {
		b.t.Fatal("the call succeeded: the kill came too late")
	}
	left := b.settledLeftovers(before, point.frozen)

	if proxied {
		b.again()
	}
	client = b.dial(socket)
	b.kube.Through(client)
	s := &stubborn{kube: b.kube, client: client}
	if point.again {
		if proxied {
			b.soon(3*time.Second, run, wants("BE", ""))
		}
		if err := s.again(ctx, point.name, func() error { return point.call(ctx, b.kube, client, run, pod) }); err != nil {
			b.t.Fatalf("the kubelet's retry: %v", err)
		}
		if proxied {
			b.now(run, wants("BE", ""))
		}
	}
	second, err := s.start(ctx, pod)
	if err != nil {
		b.t.Fatalf("the kubelet's retry: %v", err)
	}
	if proxied {
		b.soon(3*time.Second, second, wants("BE", ""))
	}
	if err := s.stop(ctx, second); err != nil {
		b.t.Fatal(err)
	}
	if run != nil {
		_ = s.stop(ctx, run) // the lab's kubelet forgets it; the runtime has none of it any more
	}
	b.eventually(10*time.Second, func() error {
		if after := b.leftovers(); fmt.Sprint(after) != fmt.Sprint(before) {
			return fmt.Errorf("after the retry and the removal: %v, before %v", after, before)
		}
		return nil
	})
	return left
}

func (b *between) dial(socket string) *cri.Client {
	b.t.Helper()
	c, err := cri.Dial(socket)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		b.kube.Through(b.host.CRI())
		_ = c.Close() // it may be closed already
	})
	return c
}

// hold makes the runtime slow or stops it; release, or the end of the test, ends that.
func (b *between) hold(frozen bool) (release func()) {
	b.t.Helper()
	if frozen {
		pid := b.host.Pid()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			b.t.Fatal(err)
		}
		release = func() { _ = unix.Kill(pid, unix.SIGCONT) } // a second one does nothing
		b.t.Cleanup(release)
		return release
	}
	_ = os.Remove(b.entered) // of an earlier point
	if err := os.WriteFile(b.slow, nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
	release = func() { _ = os.Remove(b.slow) } // a second one finds nothing
	b.t.Cleanup(release)
	return release
}

// inside returns when the runtime has the request: a stopped one when more waits for it than the pending bytes before the call.
func (b *between) inside(frozen bool, pending int) {
	b.t.Helper()
	if !frozen {
		b.eventually(10*time.Second, func() error { _, err := os.Stat(b.entered); return err })
		return
	}
	b.eventually(10*time.Second, func() error {
		if now := b.pending(); now <= pending {
			return fmt.Errorf("%d bytes wait at the runtime's socket, %d before the call", now, pending)
		}
		return nil
	})
	time.Sleep(patience(300 * time.Millisecond)) // what is written in several parts comes whole
}

// pending is how many bytes have been sent to the runtime's socket and were not read, in all of its connections.
func (b *between) pending() int {
	b.t.Helper()
	pidfd, err := unix.PidfdOpen(b.host.Pid(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer unix.Close(pidfd)
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.host.Pid()))
	if err != nil {
		b.t.Fatal(err)
	}
	sum := 0
	for _, entry := range fds {
		n, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			continue // closed since
		}
		if name, err := unix.Getsockname(fd); err == nil {
			if at, ok := name.(*unix.SockaddrUnix); ok && at.Name == b.host.Socket {
				// The listener has no bytes, and says EINVAL.
				if waiting, err := unix.IoctlGetInt(fd, unix.SIOCINQ); err == nil {
					sum += waiting
				}
			}
		}
		_ = unix.Close(fd)
	}
	return sum
}

// settledLeftovers is what there is more than before, when that has not changed for a while.
func (b *between) settledLeftovers(before map[string]int, frozen bool) map[string]int {
	b.t.Helper()
	quiet := patience(3 * time.Second)
	if !frozen {
		quiet = max(quiet, sees+2*time.Second) // runc may still begin
	}
	now, since := b.leftovers(), time.Now()
	b.eventually(2*time.Minute, func() error {
		next := b.leftovers()
		if fmt.Sprint(next) != fmt.Sprint(now) {
			now, since = next, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("still changing: %v", now)
		}
		return nil
	})
	left := map[string]int{}
	for k, n := range now {
		left[k] = n - before[k]
	}
	return left
}
