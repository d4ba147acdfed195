// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package report

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/policy/interference"
)

const (
	// sayAgain is how long the same is not said of a pod again: one that is disturbed in turns would fill the API server with it. The audit has each.
	sayAgain = 10 * time.Minute
	// waiting is how many events may wait for an API server. Further ones are dropped.
	waiting = 32
	// recordLimit bounds one call.
	recordLimit = 5 * time.Second
)

// recorder is the API server.
type recorder interface {
	Record(ctx context.Context, instance string, e kube.Event) error
}

// Herald says as events of pods who is disturbed, and who is held down for it: what `kubectl describe pod` shows.
type Herald struct {
	api   recorder
	node  string
	pods  func() *pods.Snapshot
	log   *slog.Logger
	queue chan kube.Event
	// said belongs to Tell.
	said map[saying]time.Time
}

// saying is a word about a pod.
type saying struct {
	pod, reason string
}

// NewHerald makes a Herald; node is the name that its events come from.
func NewHerald(api recorder, node string, snapshot func() *pods.Snapshot, log *slog.Logger) *Herald {
	return &Herald{api: api, node: node, pods: snapshot, log: log, queue: make(chan kube.Event, waiting), said: map[saying]time.Time{}}
}

// Tell takes what has become of pods, by one goroutine at a time. It never waits. Of a pod that the kubelet alone knows nothing is said.
func (h *Herald) Tell(list []interference.Event, now time.Time) {
	for i := range list {
		reason, warning := reasonOf(list[i].Kind)
		key := saying{list[i].Pod, reason}
		pod, known := h.pods().Pod(list[i].Pod)
		if last, did := h.said[key]; !known || pod.APIUID == "" || did && now.Sub(last) < sayAgain {
			continue
		}
		e := kube.Event{
			Regarding: kube.Object{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.APIUID},
			Warning:   warning, Reason: reason, Action: "DetectInterference", Note: list[i].Text, At: now,
		}
		select {
		case h.queue <- e:
			h.said[key] = now
		default:
			return // the audit has it
		}
	}
	for key, at := range h.said {
		if now.Sub(at) >= sayAgain {
			delete(h.said, key)
		}
	}
}

// Run sends until ctx ends. What cannot be sent is dropped, and said once until something can be again.
func (h *Herald) Run(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-h.queue:
			bounded, cancel := context.WithTimeout(ctx, recordLimit)
			err := h.api.Record(bounded, h.node, e)
			cancel()
			if err != nil && !failing && ctx.Err() == nil {
				h.log.Warn("events about interference are not recorded", "err", fmt.Errorf("pod %s/%s: %w", e.Regarding.Namespace, e.Regarding.Name, err))
			}
			failing = err != nil
		}
	}
}

// reasonOf is an event's reason, and whether it is a warning: to the owner of a pod that suffers, and of one that makes others suffer.
func reasonOf(k interference.EventKind) (reason string, warning bool) {
	switch k {
	case interference.Disturbed:
		return "Disturbed", true
	case interference.Undisturbed:
		return "NoLongerDisturbed", false
	case interference.Suspected:
		return "SuspectedOfDisturbing", false
	case interference.Convicted:
		return "Disturbing", true
	case interference.Tightened:
		return "HeldDown", false
	case interference.Acquitted:
		return "Acquitted", false
	case interference.Released:
		return "Released", false
	}
	return fmt.Sprintf("Interference%d", k), false
}
