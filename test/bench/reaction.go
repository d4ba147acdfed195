// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vm"
)

const (
	// reactionGoal is from pressure of LS pods to suppression, in seconds.
	reactionGoal = 0.2
	// reactionKernel is the guest's.
	reactionKernel = "6.12"
	reactionMemory = 3072 // MiB

	// wayTriggers is koordlet as shipped, wayTick the same without triggers: it decides once a second by what the pods have used.
	wayTriggers = "triggers"
	wayTick     = "tick alone"
)

// reactionOptions are those of the benchmark of pressure triggers.
type reactionOptions struct {
	rounds int
	inside bool
}

func (o *reactionOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "reaction-rounds", 30, "reaction: rounds with triggers, and as many without")
	f.BoolVar(&o.inside, "reaction-inside", false, "reaction: this is the guest; the benchmark itself says so")
}

// reaction boots a machine in which root may set triggers of short windows, and has this program measure there.
func (b *bench) reaction(ctx context.Context, r *report) error {
	files, given, err := b.reactionFiles(ctx)
	if err != nil {
		return err
	}
	rounds := b.o.reaction.rounds
	dir, err := os.MkdirTemp(b.dir, "guest")
	if err != nil {
		return fmt.Errorf("create folder of the guest: %w", err)
	}
	b.say("reaction: boot the guest")
	result, err := vm.Boot(ctx, vm.Options{
		Kernel: reactionKernel, Files: files, Env: vm.Surroundings(given), MemoryMiB: reactionMemory, Console: b.progress, OutputDir: dir,
		Command: vm.OnDisk(fmt.Sprintf("%s/bench -bin %s -reaction-inside -reaction-rounds %d", vm.GuestBin, vm.GuestBin, rounds)),
		Timeout: 10*time.Minute + time.Duration(rounds)*time.Minute, // half of it is usual
	})
	if err != nil {
		return err
	}
	out, err := result.Stdout()
	if err != nil {
		return err
	}
	if result.ExitCode != 0 {
		said, err := result.Stderr()
		return errors.Join(fmt.Errorf("the guest's part ended with %d: …%s", result.ExitCode, said[max(0, len(said)-3000):]), err)
	}
	var got turns
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return fmt.Errorf("read what the guest has seen: %w", err)
	}
	r.note("guest: Linux %s, cgroup v2, 8 CPUs that QEMU emulates (TCG) on the machine's %d, %d MiB, GOMAXPROCS=2; it ran for %s and took %s of CPU",
		result.Release, runtime.NumCPU(), reactionMemory, result.Took.Round(time.Second), result.CPU.Round(time.Second))
	return tellReaction(r, got)
}

// reactionFiles are what the guest needs: this program, our daemons, and the lab's parts.
func (b *bench) reactionFiles(ctx context.Context) (files map[string]string, given string, err error) {
	program, err := b.build(ctx, "bench", "./test/bench")
	if err != nil {
		return nil, "", err
	}
	files = map[string]string{program: filepath.Join(vm.GuestBin, "bench")}
	for _, name := range []string{"koord-nri", "koordlet"} {
		path, err := filepath.Abs(filepath.Join(b.o.bin, name))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return nil, "", fmt.Errorf("find %s (make build first): %w", name, err)
		}
		files[path] = filepath.Join(vm.GuestBin, name)
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return nil, "", err
	}
	given, err = vm.Carry(ctx, cache, files, parts.Containerd24, parts.Runc, parts.Image)
	return files, given, err
}

// turns are what the guest brings back, as JSON on its standard output.
type turns []*turn

// of is a duration of each turn of a way, in seconds and sorted; what never came is infinite.
func (ts turns) of(way string, is func(*turn) time.Duration) sample {
	var out sample
	for _, t := range ts {
		if t.Way != way {
			continue
		}
		d := math.Inf(1)
		if v := is(t); v != 0 {
			d = v.Seconds()
		}
		out = append(out, d)
	}
	return out.sorted()
}

func less(t *turn) time.Duration    { return t.Less }
func taken(t *turn) time.Duration   { return t.Taken }
func held(t *turn) time.Duration    { return t.Held }
func pressed(t *turn) time.Duration { return t.Pressed }
func called(t *turn) time.Duration  { return t.Called }

// fromPressed is held from the moment on in which the pressure was there.
func fromPressed(t *turn) time.Duration {
	if t.Held == 0 || t.Pressed == 0 {
		return 0
	}
	return max(t.Held-t.Pressed, 1)
}

// tellReaction judges the way with triggers. A way that was not what it is called is an error: its figures would be another's.
func tellReaction(r *report, ts turns) error {
	ts.note(r)
	between := map[string]int{} // turns in which koordlet decided without its tick
	for i, t := range ts {
		if t.Between > 0 {
			between[t.Way]++
		}
		if answered := t.Held != 0; t.Way == wayTriggers && answered && t.Between == 0 || t.Way == wayTick && t.Between > 0 {
			return fmt.Errorf("turn %d, %s, answered %t: koordlet has decided %d times between two ticks", i+1, t.Way, answered, t.Between)
		}
	}
	if between[wayTriggers] == 0 {
		return errors.New("koordlet has decided between two ticks in no turn")
	}
	stalled := fmt.Sprintf("LS pod stalled for %s", watchedTrigger().Stall)
	const begins = "LS load begins"
	for _, f := range []struct {
		from string
		took sample
	}{{stalled, ts.of(wayTriggers, fromPressed)}, {begins, ts.of(wayTriggers, held)}} {
		median, most := f.took.median(), f.took.quantile(1)
		r.judge(f.from+" → BE has less than it uses, median", "≤ 200 ms", took(median), median <= reactionGoal)
		r.judge(f.from+" → BE has less than it uses, max", "≤ 200 ms", fmt.Sprintf("%s (p90 %s of %d)", took(most), took(f.took.quantile(0.9)), len(f.took)), most <= reactionGoal)
	}
	for _, f := range []struct {
		what string
		is   func(*turn) time.Duration
	}{{"any lower quota", less}, {fmt.Sprintf("quota lower by %.1f CPUs", leastTaken/1000.0), taken}} {
		ours, tick := ts.of(wayTriggers, f.is), ts.of(wayTick, f.is)
		r.tell(begins+" → "+f.what+", "+wayTriggers, "%s", spread(ours))
		r.tell(begins+" → "+f.what+", "+wayTick, "%s", spread(tick))
		r.tell("the same, medians, tick alone / triggers", "%.1f", tick.median()/ours.median())
	}
	r.tell(begins+" → "+stalled, "%s", spread(ts.of(wayTriggers, pressed)))
	r.tell(begins+" → the kernel's trigger, as another listener is told", "%s", spread(ts.of(wayTriggers, called)))
	r.tell("decided between two ticks, turns with triggers and without", "%d, %d", between[wayTriggers], between[wayTick])
	each, last := ts.reads()
	r.tell("between two reads of the quota", "%s on average; before the one that showed the answer %s", took(each), spread(last))
	return nil
}

// spread is a sorted sample in three figures.
func spread(s sample) string {
	return fmt.Sprintf("median %s, p90 %s, max %s (%d)", took(s.median()), took(s.quantile(0.9)), took(s.quantile(1)), len(s))
}

// reads is the mean time between two reads, and that before the last of each turn, sorted.
func (ts turns) reads() (mean float64, last sample) {
	n := 0
	for _, t := range ts {
		mean, n = mean+t.Over.Seconds(), n+t.Reads
		last = append(last, t.Last.Seconds())
	}
	return mean / float64(n), last.sorted()
}

// note writes every turn into the raw file, then every quantile.
func (ts turns) note(r *report) {
	r.note("turns, since the load's begin; quotas of kubepods/besteffort in CPUs")
	for i, t := range ts {
		r.note("%3d %s", i+1, t)
	}
	for _, way := range []string{wayTriggers, wayTick} {
		for _, f := range []struct {
			name string
			is   func(*turn) time.Duration
		}{{"stalled", pressed}, {"called", called}, {"lower", less}, {"taken", taken}, {"held", held}} {
			r.note("%-10s %-7s %s", way, f.name, ts.of(way, f.is).line())
		}
	}
}

// String is the turn in a line.
func (t *turn) String() string {
	text := fmt.Sprintf("%-10s stalled enough %s, another trigger %s, lower %s, taken %s, held %s; %d reads, at most %s apart, the last %s after the one before; %s", t.Way,
		instant(t.Pressed), instant(t.Called), instant(t.Less), instant(t.Taken), instant(t.Held), t.Reads, took(t.Gap.Seconds()), took(t.Last.Seconds()), t.path())
	if t.Between > 0 {
		text += fmt.Sprintf("; koordlet: %d between ticks, %s from trigger to written", t.Between, took(t.Step))
	}
	return text
}

// instant of a turn for people.
func instant(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return took(d.Seconds())
}

// path are the values that the quota took.
func (t *turn) path() string {
	var steps []string
	for _, s := range t.Steps {
		steps = append(steps, cpus(s.Quota)+" at "+took(s.At.Seconds()))
	}
	return strings.Join(steps, " → ")
}
