// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	rounds, block int
	inside        bool
}

func (o *reactionOptions) flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "reaction-rounds", 30, "reaction: rounds with triggers, and as many without")
	f.IntVar(&o.block, "reaction-block", 5, "reaction: rounds until the way changes, for which koordlet starts anew")
	f.BoolVar(&o.inside, "reaction-inside", false, "reaction: this is the guest; the benchmark itself says so")
}

// reaction boots a machine in which root may set triggers of short windows, and has this program measure there.
func (b *bench) reaction(ctx context.Context, r *report) error {
	files, given, err := b.reactionFiles(ctx)
	if err != nil {
		return err
	}
	o := b.o.reaction
	dir, err := os.MkdirTemp(b.dir, "guest")
	if err != nil {
		return fmt.Errorf("create folder of the guest: %w", err)
	}
	b.say("reaction: boot the guest")
	result, err := vm.Boot(ctx, vm.Options{
		Kernel: reactionKernel, Files: files, Env: vm.Surroundings(given), MemoryMiB: reactionMemory, Console: b.progress, OutputDir: dir,
		Command: vm.OnDisk(fmt.Sprintf("%s/bench -bin %s -reaction-inside -reaction-rounds %d -reaction-block %d", vm.GuestBin, vm.GuestBin, o.rounds, o.block)),
		Timeout: 10*time.Minute + time.Duration(2*o.rounds)*time.Minute, // a third of it is usual
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
	var got seen
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return fmt.Errorf("read what the guest has seen: %w", err)
	}
	r.note("guest: Linux %s, cgroup v2, 8 CPUs that QEMU emulates (TCG) on the machine's %d, %d MiB, GOMAXPROCS=2; it ran for %s and took %s of CPU",
		result.Release, runtime.NumCPU(), reactionMemory, result.Took.Round(time.Second), result.CPU.Round(time.Second))
	return tellReaction(r, &got)
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

// of is a duration of each turn of a way, in seconds; what never came is infinite.
func (s *seen) of(way string, is func(*turn) time.Duration) sample {
	var out sample
	for i := range s.Turns {
		if t := &s.Turns[i]; t.Way == way {
			d := is(t).Seconds()
			if d == 0 {
				d = math.Inf(1)
			}
			out = append(out, d)
		}
	}
	return out
}

// between counts what koordlet decided without its tick, by way.
func (s *seen) between() map[string]int {
	out := map[string]int{}
	for _, b := range s.Blocks {
		out[b.Way] += int(b.Between)
	}
	return out
}

// tellReaction judges the way with triggers. A way that did not work as it is called is an error: its figures would be another's.
func tellReaction(r *report, s *seen) error {
	between := s.between()
	if between[wayTriggers] == 0 || between[wayTick] != 0 {
		return fmt.Errorf("between two ticks koordlet has decided %d times with triggers and %d times without", between[wayTriggers], between[wayTick])
	}
	s.note(r)
	fromPressure := s.of(wayTriggers, func(t *turn) time.Duration {
		if t.Held == 0 || t.Pressed == 0 {
			return 0
		}
		return max(t.Held-t.Pressed, 1)
	})
	fromLoad := s.of(wayTriggers, func(t *turn) time.Duration { return t.Held })
	stall := watchedTrigger().Stall
	for _, f := range []struct {
		name string
		took sample
	}{
		{fmt.Sprintf("LS pod stalled for %s → best effort held below its use", stall), fromPressure},
		{"LS load begins → best effort held below its use", fromLoad},
	} {
		o := f.took.sorted()
		r.judge(f.name+", median", "≤ 200 ms", took(o.median()), o.median() <= reactionGoal)
		r.judge(f.name+", max", "≤ 200 ms", fmt.Sprintf("%s (p90 %s of %d)", took(o.quantile(1)), took(o.quantile(0.9)), len(o)), o.quantile(1) <= reactionGoal)
	}
	less := func(t *turn) time.Duration { return t.Less }
	var medians []float64
	for _, way := range []string{wayTriggers, wayTick} {
		o := s.of(way, less).sorted()
		medians = append(medians, o.median())
		r.tell("LS load begins → any lower quota, "+way, "%s", spread(o))
	}
	r.tell("the same, medians, tick alone / triggers", "%.1f", medians[1]/medians[0])
	r.tell(fmt.Sprintf("LS load begins → LS pod stalled for %s", stall), "%s", spread(s.of(wayTriggers, func(t *turn) time.Duration { return t.Pressed }).sorted()))
	r.tell("LS load begins → the kernel's trigger, as another listener is told", "%s", spread(s.of(wayTriggers, func(t *turn) time.Duration { return t.Called }).sorted()))
	r.tell("decided between two ticks, triggers and tick alone", "%d, %d times", between[wayTriggers], between[wayTick])
	each, longest := s.gaps()
	r.tell("time between two reads of the quota", "%s on average, longest of a round %s", took(each), spread(longest))
	return nil
}

// spread is a sorted sample in three figures.
func spread(s sample) string {
	return fmt.Sprintf("median %s, p90 %s, max %s (%d)", took(s.median()), took(s.quantile(0.9)), took(s.quantile(1)), len(s))
}

// gaps are the times between two reads: the mean of all, and the longest of each turn, sorted.
func (s *seen) gaps() (mean float64, longest sample) {
	reads := 0
	for i := range s.Turns {
		t := &s.Turns[i]
		mean, reads = mean+t.Over.Seconds(), reads+t.Reads
		longest = append(longest, t.Gap.Seconds())
	}
	return mean / float64(reads), longest.sorted()
}

// note writes every turn into the raw file, then every quantile.
func (s *seen) note(r *report) {
	r.note("rounds, since the load's begin; quotas of kubepods/besteffort in CPUs")
	for i := range s.Turns {
		r.note("%3d %s", i+1, &s.Turns[i])
	}
	for i, b := range s.Blocks {
		r.note("life %d of koordlet, %s: decided between two ticks %d times, from trigger to written %s on average", i+1, b.Way, b.Between, took(b.Step))
	}
	columns := map[string]func(*turn) time.Duration{
		"lower": func(t *turn) time.Duration { return t.Less }, "held": func(t *turn) time.Duration { return t.Held },
		"pressed": func(t *turn) time.Duration { return t.Pressed },
		"called":  func(t *turn) time.Duration { return t.Called },
	}
	for _, way := range []string{wayTriggers, wayTick} {
		for _, name := range slices.Sorted(maps.Keys(columns)) {
			r.note("%-10s %-8s %s", way, name, s.of(way, columns[name]).line())
		}
	}
}

// String is the turn in a line.
func (t *turn) String() string {
	at := func(d time.Duration) string {
		if d == 0 {
			return "never"
		}
		return took(d.Seconds())
	}
	var steps []string
	for _, s := range t.Steps {
		steps = append(steps, fmt.Sprintf("%.2f at %s", float64(s.Quota)/1000, took(s.At.Seconds())))
	}
	return fmt.Sprintf("%-10s calm %.2f, lower %s, held %s; stalled enough %s, another trigger %s; %d reads, at most %s apart; %s", t.Way, float64(t.Calm)/1000,
		at(t.Less), at(t.Held), at(t.Pressed), at(t.Called), t.Reads, took(t.Gap.Seconds()), strings.Join(steps, " → "))
}
