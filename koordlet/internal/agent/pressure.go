// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/psi"
)

// maxTriggers bounds the pods that are watched: each costs a descriptor, and the kernel a timer while the pod is busy.
const maxTriggers = 256

// Pressure has the kernel tell when a pod that is not best effort waits for CPUs, without waiting for the tick.
type Pressure struct {
	watcher *psi.Watcher
	trigger psi.Trigger
	file    func(cgroup string) string
	fire    func(uid string)

	mu      sync.Mutex
	watches map[string]*psi.Watch // by the pod's cgroup
	// refused is why the last trigger was not taken.
	refused error
}

// NewPressure prepares the triggers. file is the absolute path of a cgroup's CPU pressure file, empty where there is none;
// fire is called with the UID of the pod for
// each crossing.
func NewPressure(t psi.Trigger, file func(cgroup string) string, fire func(uid string)) (*Pressure, error) {
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("pressure trigger: %w", err)
	}
	w, err := psi.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("pressure trigger: %w", err)
	}
	return &Pressure{watcher: w, trigger: t, file: file, fire: fire, watches: map[string]*psi.Watch{}}, nil
}

// Run waits until ctx ends.
func (p *Pressure) Run(ctx context.Context) error { return p.watcher.Run(ctx) }

// Follow keeps the triggers in step with the pods. A pod whose kernel file takes no trigger is left to the tick.
func (p *Pressure) Follow(members []engine.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	here := map[string]bool{}
	for i := range members {
		pod := members[i].Pod
		if pod.Class() == protocol.QoSBE || pod.Cgroup == "" || len(here) == maxTriggers {
			continue
		}
		here[pod.Cgroup] = true
		if p.watches[pod.Cgroup] == nil {
			p.add(pod.Cgroup, pod.UID)
		}
	}
	for cgroup, w := range p.watches {
		if !here[cgroup] {
			w.Close()
			delete(p.watches, cgroup)
		}
	}
}

func (p *Pressure) add(cgroup, uid string) {
	path := p.file(cgroup)
	if path == "" {
		p.refused = errors.New("the kernel tells no pressure of cgroups here")
		return
	}
	var w *psi.Watch // set before anybody who waits for the lock reads it
	w, err := p.watcher.Add(path, p.trigger, func(e psi.Event) {
		if e.Gone {
			p.gone(cgroup, &w)
			return
		}
		p.fire(uid)
	})
	if err != nil {
		p.refused = err
		return
	}
	p.watches[cgroup], p.refused = w, nil
}

// gone forgets the watch of a cgroup that was removed, so that one that is made anew in its place is watched again.
func (p *Pressure) gone(cgroup string, watch **psi.Watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := *watch; w != nil && p.watches[cgroup] == w {
		delete(p.watches, cgroup)
	}
}

// State says how many pods are watched, and why others are not.
func (p *Pressure) State() (watched []string, refused error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cgroup := range p.watches {
		watched = append(watched, cgroup)
	}
	slices.Sort(watched)
	return watched, p.refused
}
