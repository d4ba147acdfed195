// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package predict trains the prediction models once a minute from the window and keeps them through restarts.
//
// Inputs are the window, the node's pods and the clocks; outputs are the latest Report and one snapshot file in the state
// directory. It may import policy/predict, model, api/protocol, daemon/atomicfile, koordlet/internal/amount and pods, and the
// standard library; it talks to no server.
package predict

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/policy/predict"
)

const (
	// keepEvery is the time between two snapshots, but for the one at the end; keepTrainings where those are quicker.
	keepEvery     = 10 * unit.Minute
	keepTrainings = 10
	// trusted is how many trainings a report outlives when the pods cannot be listed.
	trusted = 5
	// minSamples of a training interval make it a measurement; fewer are a failure, or a pod that has just begun.
	minSamples = 6
	// clockSet is by how much the wall clock must go another way than that of the samples to count as set. NTP corrects by less, which ages
	// nothing.
	clockSet = unit.Minute
)

// Node is who is here at the moment.
type Node struct {
	// Pods are all pods whose containers run, of every class. Waiting are bound to the node and do not run yet: they count
	// with their request and train nothing.
	Pods, Waiting []predict.Pod
	// Allocatable of the node, not amplified.
	Allocatable predict.Resources
}

// Window answers for the recent past.
type Window interface {
	Query(s sample.Subject, m sample.Metric, from, to unit.Micros) sample.Summary
}

// Options of New.
type Options struct {
	// Config must be valid. Required.
	Config predict.Config
	// Dir is the state directory, made where it is missing. Empty keeps nothing.
	Dir string
	// Window and Node are required. Node's second result is false while the pods or the node are not known: then nothing
	// is trained, because a pod that is not listed would count as system.
	Window Window
	Node   func() (Node, bool)
	// Now is the clock of the samples. Required.
	Now func() unit.Micros
	// Wall is the wall clock; default time.Now.
	Wall func() time.Time
	// Memory is the metric of memory's use; default sample.MemoryUsage.
	Memory sample.Metric
	// MemoryPeak trains memory on the largest sample of the interval instead of its P90: memory that was needed for
	// seconds cannot be given away either.
	MemoryPeak bool
	// Log is required.
	Log *slog.Logger
}

// Report is the outcome of the latest training.
type Report struct {
	predict.Prediction
	// Known is false before the first training, and when the pods have not been known for several.
	Known bool
	// At is the clock of the samples, when the prediction was made.
	At unit.Micros
	// Models is how many there are, Skipped how many were not trained for want of a measurement.
	Models, Skipped int
	// Unkept is why the models would not survive a restart as they are, empty when they would but for the newest lessons.
	Unkept string
}

// Predictor owns the models. Run works on them alone; Report may be called by anybody.
type Predictor struct {
	o    Options
	set  *predict.Set
	last atomic.Pointer[Report]
	// kept is when the snapshot was last written or tried; unkept is the Report's.
	kept   unit.Micros
	dirty  bool
	unkept string
	// ahead is by how much the wall clock was ahead of that of the samples at the first look, or since it was last set.
	ahead  unit.Micros
	looked bool
}

// New makes a predictor; nothing is read yet.
func New(o Options) *Predictor {
	if o.Memory == 0 {
		o.Memory = sample.MemoryUsage
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	p := &Predictor{o: o, set: predict.NewSet(o.Config)}
	p.last.Store(&Report{})
	return p
}

// Report of the latest training.
func (p *Predictor) Report() Report { return *p.last.Load() }

// Run takes up what the last life has kept, trains at every interval until ctx ends, and keeps the models then. Files
// that cannot be read or written are logged; prediction goes on without them.
func (p *Predictor) Run(ctx context.Context) error {
	p.restore()
	p.kept = p.o.Now()
	pause := min(keepEvery, keepTrainings*p.o.Config.TrainEvery)
	tick := time.NewTicker(time.Duration(p.o.Config.TrainEvery) * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.keep()
			return nil
		case <-tick.C:
		}
		p.step()
		if p.o.Now()-p.kept >= pause || p.unkept != "" { // a disk that was full is tried again at each lesson
			p.keep()
		}
	}
}

func (p *Predictor) step() {
	at, now := p.moment(), p.o.Now()
	interval := p.o.Config.TrainEvery
	node, ok := p.o.Node()
	if !ok {
		if old := p.last.Load(); old.Known && now-old.At > trusted*interval {
			p.last.Store(&Report{Models: p.set.Len(), Unkept: p.unkept})
		}
		return
	}
	in := predict.Training{Node: p.usage(sample.OfNode(), now-interval, now), Pods: make([]predict.PodUsage, len(node.Pods))}
	for i := range node.Pods {
		pod := &node.Pods[i]
		in.Pods[i] = predict.PodUsage{UID: pod.UID, Priority: pod.Priority, QoS: pod.QoS, Usage: p.usage(sample.OfPod(pod.UID), now-interval, now)}
	}
	skips := p.set.Train(at, in)
	for _, s := range skips {
		p.o.Log.Debug("model is not trained, a measurement is missing", "model", string(s.Key), "cpu", s.CPU, "memory", s.Memory)
	}
	p.set.Collect(at)
	p.dirty = true
	p.last.Store(&Report{
		Prediction: p.set.Predict(at, node.Allocatable, slices.Concat(node.Pods, node.Waiting)), Known: true, At: now,
		Models: p.set.Len(), Skipped: len(skips), Unkept: p.unkept,
	})
}

// moment is the time of the wall clock. What was learned goes along with one that was set: a jump is no time that has passed, and one by days
// would take all away.
func (p *Predictor) moment() predict.Wall {
	at := p.o.Wall()
	ahead := unit.Micros(at.UnixMicro()) - p.o.Now()
	switch by := ahead - p.ahead; {
	case !p.looked:
		p.ahead, p.looked = ahead, true
	case by > clockSet || by < -clockSet:
		p.ahead = ahead
		p.set.Move(by)
		p.o.Log.Info("the clock was set; what was learned keeps its age", "by", (time.Duration(by) * time.Microsecond).Round(time.Second).String())
	}
	return wall(at)
}

// usage of a subject in an interval: the 90th percentile, so that neither a single second nor idleness makes the figure.
func (p *Predictor) usage(s sample.Subject, from, to unit.Micros) predict.Usage {
	var u predict.Usage
	if cpu := p.o.Window.Query(s, sample.CPUUsage, from, to); cpu.Count >= minSamples {
		u.CPU = unit.Got(cpu.P90)
	}
	if memory := p.o.Window.Query(s, p.o.Memory, from, to); memory.Count >= minSamples {
		u.Memory = unit.Got(memory.P90)
		if p.o.MemoryPeak {
			u.Memory = unit.Got(memory.Max)
		}
	}
	return u
}

// restore fills the set from the snapshot.
func (p *Predictor) restore() {
	if p.o.Dir == "" {
		return
	}
	now := p.moment()
	models, problems := load(p.o.Dir)
	for _, c := range models {
		if err := p.set.Restore(now, c); err != nil {
			problems = append(problems, err)
		}
	}
	for _, err := range problems {
		p.o.Log.Error("cannot take up a prediction model", "err", err)
	}
	if n := p.set.Len(); n > 0 {
		p.o.Log.Info("took up prediction models", "models", n)
	}
}

// keep writes the snapshot if there is something new.
func (p *Predictor) keep() {
	p.kept = p.o.Now()
	if p.o.Dir == "" || !p.dirty {
		return
	}
	text := ""
	err := save(p.o.Dir, p.set.Checkpoints())
	if err != nil {
		text = err.Error()
	}
	p.dirty = err != nil
	if text == p.unkept {
		return
	}
	p.unkept = text
	told := p.Report()
	told.Unkept = text
	p.last.Store(&told)
	if err != nil {
		p.o.Log.Error("cannot keep the prediction models", "err", err)
		return
	}
	p.o.Log.Info("the prediction models are kept again")
}
