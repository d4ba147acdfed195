// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/predict"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/model/unit"
	policy "github.com/koord-rt/koord-rt/policy/predict"
)

// newPredictor trains on the window; nil where it is off, or where no API server tells what the node has and who would read
// the result.
func (d *Daemon) newPredictor() (*predict.Predictor, error) {
	if !d.cfg.Predict.Enable || d.cluster.client == nil {
		return nil, nil
	}
	cfg := predictConfig(&d.cfg.Predict)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return predict.New(predict.Options{
		Config: cfg, Dir: filepath.Join(d.cfg.StateDir, "prediction"), Window: d.window, Now: boot, MemoryPeak: true, Log: d.log,
		Node: func() (predict.Node, bool) { return predictable(d.pods.State(), d.pods.Snapshot(), d.cluster.Node()) },
	}), nil
}

// predictConfig is upstream's but for what the configuration names.
func predictConfig(c *config.Predict) policy.Config {
	every := func(t config.Duration) unit.Micros { return unit.Micros(t.Std().Microseconds()) }
	out := policy.Default()
	out.CPU.HalfLife, out.Memory.HalfLife = every(c.CPUHalfLife), every(c.MemoryHalfLife)
	out.CPU.Percentile, out.Memory.Percentile = int(c.CPUPercentile), int(c.MemoryPercentile)
	out.ColdStart, out.TrainEvery = every(c.ColdStart), every(c.Interval)
	out.Expire = max(out.Expire, 2*out.TrainEvery)
	p := unit.Percent(c.SafetyMarginPercent)
	out.Margin = policy.Margin{Prod: p, Mid: p, Batch: p, Free: p, None: p, System: p}
	m, cpu, memory := &out.Margin, &out.CPU.Classes, &out.Memory.Classes
	for name, to := range map[string]struct {
		margin      *unit.Percent
		cpu, memory *int
	}{
		protocol.PriorityProd.String():  {&m.Prod, &cpu.Prod, &memory.Prod},
		protocol.PriorityMid.String():   {&m.Mid, &cpu.Mid, &memory.Mid},
		protocol.PriorityBatch.String(): {&m.Batch, &cpu.Batch, &memory.Batch},
		protocol.PriorityFree.String():  {&m.Free, &cpu.Free, &memory.Free},
		config.PredictNone:              {&m.None, &cpu.None, &memory.None},
		config.PredictSystem:            {&m.System, &cpu.System, &memory.System},
	} {
		own := c.Classes[name]
		if own.SafetyMarginPercent != nil {
			*to.margin = unit.Percent(*own.SafetyMarginPercent)
		}
		if own.CPUPercentile != nil {
			*to.cpu = int(*own.CPUPercentile)
		}
		if own.MemoryPercentile != nil {
			*to.memory = int(*own.MemoryPercentile)
		}
	}
	return out
}

// predictable is who is here; false while the list of pods is not confirmed, because a pod that is missing in it would
// count as system, or while it is unknown what the node has.
func predictable(state *pods.State, s *pods.Snapshot, n *kube.Node) (predict.Node, bool) {
	if n == nil || !state.Current || s.Generation == 0 {
		return predict.Node{}, false
	}
	allocatable, ok := predict.Allocatable(n.Allocatable, n.Annotations[protocol.AnnotationRawAllocatable])
	if !ok {
		return predict.Node{}, false
	}
	return predict.NodeOf(s, allocatable), true
}

// tellPrediction puts a prediction into a report. Nothing known is nothing told: 0 would be a statement.
func tellPrediction(r *predict.Report, in *report.Input) {
	if !r.Known {
		return
	}
	in.Reclaimable = &report.Figures{CPU: r.Reclaimable.CPU, Memory: r.Reclaimable.Memory}
	in.Peak = &report.Figures{CPU: r.Peak.CPU, Memory: r.Peak.Memory}
}

// predictLoop is the prediction as one of the loops, for people.
func predictLoop(r *predict.Report, now unit.Micros, wall time.Time) status.Loop {
	l := status.Loop{Name: "predict", State: status.StateActive}
	if r.Unkept != "" {
		l.State, l.Err = status.StateDegraded, "what was learned would not survive a restart: "+r.Unkept
	}
	switch {
	case !r.Known:
		l.State, l.Decision = status.StateDegraded, "nothing is told: pods or node are not known, or nothing was measured yet"
		return l
	case !r.Classes.Known:
		l.State, l.Decision = status.StateDegraded, "cold: nothing is reclaimable until the models have seen half of predict.coldStart; "
	}
	l.Decision += fmt.Sprintf("%d models, %d pods count with their whole request, %d figures were missing", r.Models, r.Unpredicted, r.Skipped)
	l.At = wall.Add(-time.Duration(now-r.At) * time.Microsecond)
	return l
}
