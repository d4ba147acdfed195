// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// ownStateDir puts a small tmpfs where koordlet keeps what survives a boot, so that it can be filled.
func (n *governed) ownStateDir(t *testing.T) {
	t.Helper()
	dir := filepath.Join(n.dir, "state")
	if err := unix.Mount("koord-rt-lab", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4m,mode=0700"); err != nil {
		t.Fatalf("mount a state directory: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the state directory: %v", err)
		}
	})
}

// fill leaves no room in the state directory. What is being written meanwhile fails and gives back what it had, so that is waited for.
func (n *governed) fill(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		n.grow(t)
		for _, file := range []string{n.models(), n.kept()} {
			dir, name := filepath.Split(file)
			if left, err := filepath.Glob(dir + "." + name + ".tmp-*"); err != nil || len(left) > 0 {
				return fmt.Errorf("files are being written: %q, %w", left, err)
			}
		}
		n.grow(t)
		return nil
	})
}

// grow lets the ballast take all the room that there is.
func (n *governed) grow(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(n.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// What koordlet has in the state directory, and what takes the room there.
func (n *governed) ballast() string { return filepath.Join(n.dir, "state", "ballast") }
func (n *governed) kept() string    { return filepath.Join(n.dir, "state", handoff.StrategyFile) }
func (n *governed) models() string {
	return filepath.Join(n.dir, "state", "prediction", "prediction.json")
}

// nextBoot is the suppression threshold that a koordlet, koord-nri or proxy would find after a boot: the run directory is empty then.
func (n *governed) nextBoot(t *testing.T) (percent int64) {
	t.Helper()
	found := handoff.Read(handoff.Options{RunDir: t.TempDir(), StateDir: filepath.Join(n.dir, "state")})
	if len(found.Problems) > 0 || !found.StrategyFromState {
		t.Fatalf("after a boot there is no strategy: %v", found.Problems)
	}
	if p := found.Strategy.Threshold().CPUSuppressThresholdPercent; p != nil {
		return *p
	}
	return 0
}

// keeps waits for what the state directory has to have.
func (n *governed) keeps(t *testing.T, threshold int64) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if got := n.nextBoot(t); got != threshold {
			return fmt.Errorf("after a boot the threshold would be %d, want %d", got, threshold)
		}
		return nil
	})
}

// loopSays waits until koordctl top says of a loop that this has failed; "" for nothing, and for a loop that is not told of.
func (n *governed) loopSays(t *testing.T, limit time.Duration, name, failed string) {
	t.Helper()
	eventually(t, limit, func() error {
		shown, err := n.shown(t)
		if err != nil {
			return err
		}
		says := ""
		if i := slices.IndexFunc(shown.Loops, func(l status.Loop) bool { return l.Name == name }); i >= 0 {
			says = shown.Loops[i].Err
		}
		if (failed == "") != (says == "") || !strings.Contains(says, failed) {
			return fmt.Errorf("of %s koordctl top says %q, want %q: %+v", name, says, failed, shown.Loops)
		}
		return nil
	})
}

// TestClusterNodeDiskFull: the disk with the state directory is full. What the NodeSLO says is in force all the same and said to be, the loops go on,
// koordlet tells what would not survive, once, and what was kept before stays whole. With room again all is kept, without a change that
// would be the cause. A koordlet that is killed meanwhile and started again takes up what was kept, and keeps what the one before could
// not. It waits for lessons most of the time, and measures nothing that a neighbour could take.
func TestClusterNodeDiskFull(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	n := govern(ctx, t)
	n.ownStateDir(t)
	n.start(t)
	if _, err := n.c.Admin().Create(ctx, slos, cluster.Object{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": n.k.Node},
		"spec": threshold(map[string]any{"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 30, "memoryEvictThresholdPercent": 100}),
	}); err != nil {
		t.Fatal(err)
	}
	n.quotaWithin(t, 0, 30)
	n.keeps(t, 30)
	n.ticksTo(t, 21) // a lesson, which is kept at koordlet's end
	n.agent.end(t)
	n.reborn()
	n.inForce(t)
	const full, tookUp = "no space left on device", "took up prediction models"
	log := func() string { return read(t, filepath.Join(n.dir, "koordlet.log")) }
	asks := func(percent int) {
		t.Helper()
		n.patch(t, threshold(map[string]any{"cpuSuppressThresholdPercent": percent, "cpuSuppressMinPercent": nil}))
		n.quotaWithin(t, 0, percent)
		n.inForce(t)
		n.loopSays(t, time.Minute, "keep-strategy", full)
	}
	asked, said := n.nextBoot(t), len(log())
	n.fill(t)
	models := read(t, n.models())
	asks(35)
	n.loopSays(t, 4*time.Minute, "predict", full) // the models are kept every 100 s here
	n.sees(t, `koord_rt_koordlet_loop_state\{loop="keep-strategy",state="degraded"\} 1`)
	handed, err := os.Stat(filepath.Join(n.dir, "run", handoff.StrategyFile))
	if err != nil {
		t.Fatal(err)
	}
	n.ticksTo(t, n.ticked(t)+25) // of two lessons and two tries to keep the strategy
	if again, err := os.Stat(filepath.Join(n.dir, "run", handoff.StrategyFile)); err != nil || !os.SameFile(handed, again) {
		t.Errorf("the strategy was handed on again, though it has not changed: %v", err)
	}
	times := map[string]int{} // that something could not be written, each by its own words
	for line := range strings.Lines(log()[said:]) {
		if _, what, _ := strings.Cut(line, " "); strings.Contains(what, full) {
			if times[what]++; times[what] == 2 {
				t.Errorf("koordlet says more than once that its disk is full: %s", what)
			}
		}
	}
	if len(times) < 2 {
		t.Errorf("koordlet does not say what its full disk keeps it from: %v", times)
	}
	if body, err := n.asks(t, "http://koordlet/healthz", nil); err != nil || string(body) != "ok\n" {
		t.Errorf("/healthz, of a koordlet that works: %q, %v", body, err)
	}
	if got := n.nextBoot(t); got != asked || read(t, n.models()) != models {
		t.Errorf("what was kept is lost: after a boot the threshold would be %d, want %d, and the models:\n%.600s", got, asked, read(t, n.models()))
	}

	if err := os.Remove(n.ballast()); err != nil {
		t.Fatal(err)
	}
	n.keeps(t, 35)
	n.loopSays(t, time.Minute, "keep-strategy", "")
	n.loopSays(t, time.Minute, "predict", "")
	if read(t, n.models()) == models {
		t.Error("the prediction works again, and its models are not kept")
	}

	n.fill(t)
	asks(25)
	n.kill(t)
	n.disturb(t)
	taken := strings.Count(log(), tookUp)
	n.reborn()
	n.quotaWithin(t, 0, 25)
	n.inForce(t)
	eventually(t, time.Minute, func() error {
		if strings.Count(log(), tookUp) != taken+1 {
			return fmt.Errorf("koordlet did not take up its models")
		}
		return nil
	})
	n.loopSays(t, time.Minute, "keep-strategy", full)
	eventually(t, 60*time.Second, func() error { return n.remembers(t) })
	if got := n.nextBoot(t); got != 35 {
		t.Errorf("after a boot the threshold would be %d, want 35, which was kept last", got)
	}
	if err := os.Remove(n.ballast()); err != nil {
		t.Fatal(err)
	}
	n.keeps(t, 25)
	n.loopSays(t, time.Minute, "keep-strategy", "")
	n.up(t)
}
