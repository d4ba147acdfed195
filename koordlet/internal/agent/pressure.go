// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/psi"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// maxTriggers bounds the pods that are watched: each costs a descriptor, and the kernel a timer while the pod is busy.
const maxTriggers = 256

// refusedTurns is how many turns of Follow a file that took no trigger is left alone: most never take one, and to ask each of them anew at
// each turn was a fiftieth of koordlet's time beside forty pods.
const refusedTurns = 5

// refusal is why a pod is not watched, and for how many turns yet nobody asks again.
type refusal struct {
	err   error
	turns int
}

// Pressure has the kernel tell when a pod that is not best effort waits for CPUs, without waiting for the tick.
type Pressure struct {
	watcher *psi.Watcher
	trigger psi.Trigger
	file    func(cgroup string) string
	fire    func(uid string)

	mu      sync.Mutex
	watches map[string]*psi.Watch // by the pod's cgroup
	// refusals are those of the pods that are here, by cgroup; refused is what the newest Follow told of them.
	refusals map[string]*refusal
	refused  error
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
	return &Pressure{watcher: w, trigger: t, file: file, fire: fire, watches: map[string]*psi.Watch{}, refusals: map[string]*refusal{}}, nil
}

// Run waits until ctx ends.
func (p *Pressure) Run(ctx context.Context) error { return p.watcher.Run(ctx) }

// Follow keeps the triggers in step with the pods. A pod whose kernel file takes no trigger, or for which there is none left, waits
// for the tick; the error tells of these.
func (p *Pressure) Follow(members []engine.Member) error {
	ended, refused := p.follow(members)
	for _, w := range ended { // without the lock, since the kernel takes its time and gone waits for it
		w.Close()
	}
	return refused
}

func (p *Pressure) follow(members []engine.Member) (ended []*psi.Watch, refused error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	here := map[string]bool{}
	left := 0
	for i := range members {
		pod := members[i].Pod
		switch {
		case pod.Class() == protocol.QoSBE || pod.Cgroup == "":
			continue
		case len(here) == maxTriggers:
			left++
			continue
		}
		here[pod.Cgroup] = true
		if p.watches[pod.Cgroup] != nil {
			continue
		}
		if err := p.try(pod.Cgroup, pod.UID); err != nil {
			refused = fmt.Errorf("pod %s waits for the tick: %w", pod.FullName(), err)
		}
	}
	if left > 0 {
		refused = errors.Join(refused, fmt.Errorf("%d pods wait for the tick: only %d are watched", left, maxTriggers))
	}
	p.refused = refused
	maps.DeleteFunc(p.refusals, func(cgroup string, _ *refusal) bool { return !here[cgroup] })
	for cgroup, w := range p.watches {
		if !here[cgroup] {
			ended = append(ended, w)
			delete(p.watches, cgroup)
		}
	}
	return ended, refused
}

// try adds a watch, but for turns in which a refusal stands.
func (p *Pressure) try(cgroup, uid string) error {
	if r := p.refusals[cgroup]; r != nil && r.turns > 0 {
		r.turns--
		return r.err
	}
	err := p.add(cgroup, uid)
	if err == nil {
		delete(p.refusals, cgroup)
	} else {
		p.refusals[cgroup] = &refusal{err, refusedTurns}
	}
	return err
}

func (p *Pressure) add(cgroup, uid string) error {
	path := p.file(cgroup)
	if path == "" {
		return errors.New("the kernel tells no pressure of cgroups here")
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
		if _, gone := root.Inode(filepath.Dir(path)); errors.Is(gone, fs.ErrNotExist) {
			return nil // the pod has ended
		}
		return err
	}
	p.watches[cgroup] = w
	return nil
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
