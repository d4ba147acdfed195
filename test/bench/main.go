// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command bench takes the figures of docs/benchmarks: what a decision costs, what a handler costs, what the runtime and
// its users notice of the plugin, how fast a full node is repaired, how much memory that takes, what the CRI proxy costs
// beside a byte relay and upstream's, what the node agent and the manager cost beside upstream's, how fast
// pressure is answered, how fast best effort gives way to a load beside upstream's agent, how fast a change of the cluster's
// strategy is followed, and how fast our webhooks answer.
//
// Input are the binaries in bin (make build), root and the lab's parts; output is a table with goals
// on standard output, raw files in docs/benchmarks/raw and the figures between the markers of docs/benchmarks/README.md.
// Progress goes to standard error. It may import every shared room and the lab; nothing may import it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options of one run of the program.
type options struct {
	only      []string
	out       string
	bin       string
	decisions int
	running   int
	creates   int
	at        []int // ascending
	rounds    int
	pairs     int
	none      bool
	stamp     bool
	fleet     int
	repeat    int
	settle    time.Duration
	rest      time.Duration
	noopNice  int
	realTime  bool
	proxy     proxyOptions
	agent     agentOptions
	reaction  reactionOptions
	yield     yieldOptions
	follow    followOptions
	manager   managerOptions
}

// benchmarks in the order in which they run.
func benchmarks() []benchmark {
	return []benchmark{
		{"decide", (*bench).decide}, {"handlers", (*bench).handlers}, {"apart", (*bench).apart}, {"least", (*bench).least}, {"pairs", (*bench).pairs},
		{"sync", (*bench).sync}, {"memory", (*bench).memory}, {"proxy", (*bench).proxy},
		{"koordlet", (*bench).koordlet}, {"reaction", (*bench).reaction}, {"yield", (*bench).yield}, {"follow", (*bench).follow}, {"manager", (*bench).manager},
		{"webhooks", (*bench).webhooks},
	}
}

type benchmark struct {
	name string
	run  func(*bench, context.Context, *report) error
}

// bench is what the benchmarks of one run share.
type bench struct {
	o        options
	progress io.Writer
	// noop is the built plugin that does nothing, "" until it is needed; it lies in dir.
	noop, dir string
	// crowd is the containerd with many containers, nil until it is needed.
	crowd *fleet
	// own is the CPU that plugins have to themselves, 0 for none.
	own int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(start(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "benchmarks to run, separated by commas (default all): decide, handlers, apart, least, pairs, sync, memory, proxy, koordlet, reaction, yield, follow, manager, webhooks")
	f.StringVar(&o.out, "out", "docs/benchmarks", "folder to write raw files and figures to; empty writes nothing")
	f.StringVar(&o.bin, "bin", "bin", "folder of koord-nri, koord-runtime-proxy, koordlet and koord-manager")
	f.IntVar(&o.decisions, "decisions", 200_000, "decide: decisions to time")
	f.IntVar(&o.running, "running", 250, "handlers, apart, least, proxy: running containers, ten to a pod")
	f.IntVar(&o.creates, "creates", 1000, "handlers, apart, least: containers per concurrency, at least, two to a pod, over all rounds")
	at := f.String("at", "1,10,64", "handlers, apart, least: how many containers are created at once, one after the other")
	f.IntVar(&o.rounds, "rounds", 6, "handlers, apart: rounds, a multiple of 3; in three of them ours and both plugins that do nothing have each place once")
	f.IntVar(&o.pairs, "pairs", 2000, "pairs: pairs of pods")
	f.BoolVar(&o.none, "none", false, "pairs: compare with no plugin at all, too")
	f.BoolVar(&o.stamp, "stamp", false, "pairs: compare with a plugin that adds one annotation and nothing else, too")
	f.IntVar(&o.fleet, "fleet", 1000, "sync, memory: containers, fifty to a pod")
	f.IntVar(&o.repeat, "repeat", 3, "sync: repetitions")
	f.DurationVar(&o.settle, "settle", 20*time.Second, "handlers, apart, least, pairs, proxy: wait between a plugin's connection and the first request")
	f.DurationVar(&o.rest, "rest", 30*time.Second, "memory, proxy: wait before memory is read")
	f.BoolVar(&o.realTime, "realtime", true, "koord-nri and the plugin that does nothing run in real time, as koord-nri does by default")
	f.IntVar(&o.noopNice, "noop-nice", -10, "nice value of the plugin that does nothing and of the byte relay; our programs give themselves -10")
	o.proxy.flags(f)
	o.agent.flags(f)
	o.reaction.flags(f)
	o.yield.flags(f)
	o.follow.flags(f)
	o.manager.flags(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.ContainsFunc(benchmarks(), func(b benchmark) bool { return b.name == name }) {
			return o, fmt.Errorf("there is no benchmark %q", name)
		}
	}
	for name, n := range map[string]int{"decisions": o.decisions, "running": o.running, "creates": o.creates, "rounds": o.rounds, "pairs": o.pairs, "fleet": o.fleet, "repeat": o.repeat,
		"calls": o.proxy.calls, "proxy-pairs": o.proxy.pairs, "load-rounds": o.proxy.rounds, "clients": o.proxy.clients,
		"agent-pods": o.agent.pods, "agent-containers": o.agent.containers, "floor": o.agent.floor,
		"reaction-rounds": o.reaction.rounds, "yield-rounds": o.yield.rounds, "follow-rounds": o.follow.rounds} {
		if n < 1 {
			return o, fmt.Errorf("-%s must be at least 1", name)
		}
	}
	if o.rounds%3 != 0 {
		return o, fmt.Errorf("-rounds is %d, and must be a multiple of 3: each plugin has each place as often as the others", o.rounds)
	}
	var err error
	if o.at, err = parseAt(*at); err == nil && len(o.at) < len(concurrencies()) && o.out != "" {
		err = errors.New(`-at leaves some out, and the table would lose them: add -out ""`)
	}
	return o, errors.Join(err, o.agent.check(), o.manager.check())
}

// start is main with its surroundings as arguments; the result is the exit code.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	b := &bench{o: o, progress: stderr}
	run := b.all
	if o.reaction.inside {
		run = b.reactionInside
	}
	err = run(ctx, stdout)
	if err = errors.Join(err, b.close()); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// all runs the chosen benchmarks; one that fails does not keep the next from running.
func (b *bench) all(ctx context.Context, stdout io.Writer) error {
	var errs []error
	for _, bm := range benchmarks() {
		if len(b.o.only) > 0 && !slices.Contains(b.o.only, bm.name) {
			continue
		}
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("%s: %w", bm.name, ctx.Err()))
			break
		}
		r := newReport(bm.name)
		b.say("%s: begins", bm.name)
		if err := bm.run(b, ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", bm.name, err))
			continue
		}
		r.finish()
		fmt.Fprint(stdout, r.table())
		if b.o.out != "" {
			errs = append(errs, r.write(b.o.out))
		}
	}
	return errors.Join(errs...)
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func (b *bench) close() error {
	var errs []error
	if b.crowd != nil {
		b.say("remove the containers")
		errs = append(errs, b.crowd.rig.close())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}
