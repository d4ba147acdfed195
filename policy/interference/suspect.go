// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package interference

import (
	"cmp"
	"math"
	"slices"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/unit"
)

// Figures of suspicion.
const (
	correlationHalfLife = 2 * unit.Minute
	// A correlation is worth something after correlated samples.
	correlated      = 20
	correlationBand = 0.4
	partBand        = 0.1
	partAlone       = 0.5
)

// Correlation of one BE pod's use of a resource with the distress about it. Its means and covariance forget by half in two
// minutes.
type Correlation struct {
	Mean  float64 `json:"mean,omitempty"`
	Var   float64 `json:"var,omitempty"`
	Cov   float64 `json:"cov,omitempty"`
	Count int64   `json:"count,omitempty"`
}

// with is the correlation coefficient; not ok as long as too little is known, or nothing varies.
func (c *Correlation) with(d *ResourceState) (float64, bool) {
	if c.Count < correlated || d.Weight < correlated || c.Var <= 1e-12 || d.Var <= 1e-12 {
		return 0, false
	}
	return min(max(c.Cov/math.Sqrt(c.Var*d.Var), -1), 1), true
}

// correlate moves the correlations of the BE pods, then the distress they are taken with.
func (w *work) correlate() {
	share := 1 - math.Exp2(-w.elapsed.Seconds()/correlationHalfLife.Seconds())
	for i := range w.in.Pods {
		p, state := &w.in.Pods[i], &w.next.Pods[i]
		if p.QoS != protocol.QoSBE {
			continue
		}
		for r := range NumResources {
			x, ok := usable(use(p, r))
			if !ok || w.capped(p.UID, r) {
				continue // what a cap does to the use says nothing about the pod
			}
			c, d := &state.Use[r], &w.next.Resource[r]
			if c.Count == 0 && d.Weight >= correlated {
				c.Count = correlated // it used nothing before it came
			}
			a := max(1/float64(c.Count+1), share)
			diff := x - c.Mean
			c.Mean += a * diff
			c.Cov = (1 - a) * (c.Cov + a*diff*(d.Now-d.Mean))
			c.Var = (1 - a) * (c.Var + a*diff*diff)
			c.Count++
		}
	}
	for r := range NumResources {
		d := &w.next.Resource[r]
		a := max(1/(d.Weight+1), share)
		diff := d.Now - d.Mean
		d.Mean += a * diff
		d.Var = (1 - a) * (d.Var + a*diff*diff)
		d.Weight++
	}
}

// use is a pod's use of a resource: of the cache, which few nodes tell, its CPU time stands in.
func use(p *Pod, r Resource) unit.Measured[Level] {
	if r == Cache && !p.Used[Cache].OK {
		return p.Used[CPU]
	}
	return p.Used[r]
}

// suspect is a candidate with what speaks against it.
type suspect struct {
	pod               *Pod
	score, corr, part float64
	known             bool
}

// worst finds the pod to be tried next.
func (w *work) worst(r Resource) (suspect, bool) {
	var total float64
	for i := range w.in.Pods {
		if x, ok := usable(use(&w.in.Pods[i], r)); ok && w.in.Pods[i].QoS == protocol.QoSBE {
			total += x
		}
	}
	if total <= 0 {
		return suspect{}, false
	}
	var all []suspect
	for i := range w.in.Pods {
		p, state := &w.in.Pods[i], &w.next.Pods[i]
		x, ok := usable(use(p, r))
		if !ok || p.QoS != protocol.QoSBE || w.in.Now < state.Innocent[r] || w.capped(p.UID, r) {
			continue
		}
		c := suspect{pod: p, part: x / total}
		c.corr, c.known = state.Use[r].with(&w.next.Resource[r])
		switch {
		case c.known && c.corr >= correlationBand && c.part >= partBand:
			c.score = 1 + c.corr*c.part
		case c.part >= partAlone && c.corr > -correlationBand:
			c.score = c.part
		default:
			continue
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return suspect{}, false
	}
	return slices.MinFunc(all, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.pod.UID, b.pod.UID))
	}), true
}

func (w *work) capped(uid string, r Resource) bool {
	match := func(s Suspicion) bool { return s.Pod == uid && s.Resource == r }
	return slices.ContainsFunc(w.s.Suspects, match) || slices.ContainsFunc(w.next.Suspects, match)
}
