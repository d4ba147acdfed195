// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package predict

import (
	"github.com/koord-rt/koord-rt/api/protocol"
)

// peak is the configured peak of a model, with its margin; false when the model is missing or cold.
func (s *Set) peak(k Key, r reading) (Resources, bool) {
	m := s.models[k]
	if m == nil || !s.warm(&m.cpu) || !s.warm(&m.memory) {
		return Resources{}, false
	}
	var cpu, memory [1]float64
	m.cpu.quantiles([]int{r.cpu}, cpu[:])
	m.memory.quantiles([]int{r.memory}, memory[:])
	return round(cpu[0], memory[0]).with(r.margin), true
}

func (s *Set) warm(h *histogram) bool {
	return h.ref != 0 && h.evidence() >= s.cfg.warm(h.halfLife)
}

// Pod is a pod of the node as prediction sees it.
type Pod struct {
	UID      string
	Priority protocol.PriorityClass
	// QoS is its class with the default of its Kubernetes class.
	QoS protocol.QoS
	// Started is when it began to run; a pod of whom it is unknown counts as new.
	Started     Wall
	Terminating bool
	Request     Resources
}

// Part is what one of the two predictors says.
type Part struct {
	Reclaimable, Peak Resources
	// Known is false when nothing could be said; then the amounts are 0.
	Known bool
}

// Sum is the peak of all pods of one class together, with the margin. Peaks of classes do not add up: they come at their own
// times.
type Sum struct {
	// Class is "koord-batch" or "BE", "none" for pods without.
	Class string
	Peak  Resources
	// Known is false while the class's model is cold; then the peak is 0.
	Known bool
}

// Prediction is the result for koord-prod and unclassed pods, and the peak of each class.
type Prediction struct {
	// Reclaimable is the lesser of both predictors' by resource, Peak the greater: upstream's prodReclaimableMetric and
	// prodPeakMetric.
	Reclaimable, Peak Resources
	// Pods adds up pods; Classes looks at their sum.
	Pods, Classes Part
	// Unpredicted counts the pods that stand with their whole request: new, terminating, or without a warm model.
	Unpredicted int
	// ByPriority and ByQoS are all classes, of each kind in one order.
	ByPriority [len(classes)]Sum
	ByQoS      [len(qosClasses)]Sum
}

// Predict says how much of the requests of the pods will not be used. allocatable is the node's, not amplified (the
// annotation raw-allocatable where there is one).
//
//	pods:    peak        = Σ predicted (pᵢ · (1 + margin)) + Σ unpredicted requests
//	         reclaimable = min(Σ predicted max(requestᵢ − peakᵢ, 0), max(allocatable − peak, 0))
//	classes: peak        = prod · (1 + margin) + none · (1 + margin)
//	         used        = peak + system · (1 + margin)
//	         reclaimable = min(max(Σ requests of prod − used, 0), max(allocatable − used, 0))
//
// where pᵢ, prod, none and system are p95 of CPU and p98 of memory by default; percentile and margin are those of the class. A pod of 4 CPUs with a p95 of 2 peaks at
// 2.2 and leaves 1.8. The peak of any class is p · (1 + margin) of the sum of its pods.
func (s *Set) Predict(now Wall, allocatable Resources, pods []Pod) Prediction {
	var out Prediction
	out.Pods, out.Unpredicted = s.byPods(now, allocatable, pods)
	out.Classes = s.byClasses(allocatable, pods)
	out.Peak = out.Pods.Peak.most(out.Classes.Peak)
	if out.Pods.Known && out.Classes.Known {
		out.Reclaimable = out.Pods.Reclaimable.least(out.Classes.Reclaimable)
	}
	for i, c := range classes {
		out.ByPriority[i] = s.sum(ClassKey(c), c.String(), s.cfg.of(c))
	}
	for i, q := range qosClasses {
		out.ByQoS[i] = s.sum(QoSKey(q), q.String(), s.cfg.of(q.DefaultPriorityClass()))
	}
	return out
}

// sum is the peak of a class.
func (s *Set) sum(k Key, class string, r reading) Sum {
	if class == "" {
		class = "none"
	}
	peak, ok := s.peak(k, r)
	return Sum{Class: class, Peak: peak, Known: ok}
}

// high reports whether pods of a class are among those whose requests are predicted.
func high(p protocol.PriorityClass) bool {
	return p == protocol.PriorityProd || p == protocol.PriorityNone
}

func (s *Set) byPods(now Wall, allocatable Resources, pods []Pod) (part Part, unpredicted int) {
	part.Known = true
	for i := range pods {
		p := &pods[i]
		if !high(p.Priority) {
			continue
		}
		peak, ok := Resources{}, false
		if !p.Terminating && p.Started != 0 && now.since(p.Started) > s.cfg.ColdStart {
			peak, ok = s.peak(Key(p.UID), s.cfg.of(p.Priority))
		}
		if !ok {
			unpredicted++
			part.Peak = part.Peak.plus(p.Request)
			continue
		}
		part.Peak = part.Peak.plus(peak)
		part.Reclaimable = part.Reclaimable.plus(p.Request.less(peak))
	}
	part.Reclaimable = part.Reclaimable.least(allocatable.less(part.Peak))
	return part, unpredicted
}

func (s *Set) byClasses(allocatable Resources, pods []Pod) Part {
	prod, okProd := s.peak(ClassKey(protocol.PriorityProd), s.cfg.of(protocol.PriorityProd))
	none, okNone := s.peak(ClassKey(protocol.PriorityNone), s.cfg.of(protocol.PriorityNone))
	system, okSystem := s.peak(SystemKey, s.cfg.system())
	if !okProd || !okNone || !okSystem {
		return Part{}
	}
	peak := prod.plus(none)
	used := peak.plus(system)
	var requests Resources
	for i := range pods {
		if pods[i].Priority == protocol.PriorityProd {
			requests = requests.plus(pods[i].Request)
		}
	}
	return Part{Reclaimable: requests.less(used).least(allocatable.less(used)), Peak: peak, Known: true}
}
