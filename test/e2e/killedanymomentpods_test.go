// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// work makes pods of each kind in a goroutine of its own until end.
func (a *anyMoment) work() {
	for _, kind := range []string{"ls", "be", "lsr"} {
		if kind == "be" && emulated() { // half a minute; one stands
			continue
		}
		s := a.stubborn()
		a.wg.Go(func() {
			for i := 0; ; i++ {
				err := a.life(s, kind, i)
				a.mu.Lock()
				a.count.made++
				a.count.lost += s.lost
				s.lost = 0
				if err != nil {
					a.errs = append(a.errs, err)
				}
				a.mu.Unlock()
				if a.ends() {
					return
				}
			}
		})
	}
}

func (a *anyMoment) ends() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// life brings a pod up, resizes it and takes it away again. A few stay.
func (a *anyMoment) life(s *stubborn, kind string, i int) error {
	ctx, name := a.t.Context(), fmt.Sprintf("any-%s%d", kind, i)
	p := map[string]func(string) kubelet.Pod{"ls": lsPod, "be": bePod, "lsr": lsrPod}[kind](name)
	run, err := s.start(ctx, p)
	if err != nil {
		return err
	}
	a.cleanPod(run)
	if err := a.hold(run, wants(strings.ToUpper(kind), "")); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond) // it is found in rounds
	switch kind {
	case "ls":
		err = a.resize(s, run, limited("1500m", "128Mi"), quotaWants(150000, 128<<20), limited("500m", "128Mi"), wants("LS", ""))
	case "lsr":
		res := func(cpu kubelet.Quantity) kubelet.Resources {
			amount := map[string]kubelet.Quantity{"cpu": cpu, "memory": "64Mi"}
			return kubelet.Resources{Requests: amount, Limits: amount}
		}
		err = a.resize(s, run, res("2"), wants("LSR", ""), res("1"), wants("LSR", ""))
	}
	if err != nil {
		return err
	}
	if i%4 == 1 && i < 8 && kind != "lsr" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stays = append(a.stays, run)
		return nil
	}
	a.letGo(run)
	if err := s.stop(ctx, run); err != nil || kind != "lsr" {
		return err
	}
	return a.settled("all CPUs after "+name, a.given)
}

// resize takes a pod up and down again.
func (a *anyMoment) resize(s *stubborn, run *kubelet.Running, up kubelet.Resources, grown []string, down kubelet.Resources, shrunk []string) error {
	for i, res := range []kubelet.Resources{up, down} {
		a.letGo(run)
		if err := s.again(a.t.Context(), "resize of "+run.Pod.Name, func() error { return a.kube.ResizeContainer(a.t.Context(), run, "main", res) }); err != nil {
			return err
		}
		if err := a.hold(run, [][]string{grown, shrunk}[i]); err != nil {
			return err
		}
		a.mu.Lock()
		a.count.resized++
		a.mu.Unlock()
	}
	return nil
}

// given tells who has not got back what an exclusive pod had; the lock is held.
func (a *anyMoment) given() error {
	var errs []error
	for _, h := range a.held {
		errs = append(errs, a.rig.differs(h.run, inForce(allCPUs())))
	}
	return errors.Join(errs...)
}

// hold waits until a pod has its values; from then on it keeps them until it is let go.
func (a *anyMoment) hold(run *kubelet.Running, wants []string) error {
	pid, err := a.pidOf(run)
	if err != nil {
		return err
	}
	h := heldPod{run, pid, wants, strings.Contains(run.Pod.Name, "-lsr")}
	return a.settled(run.Pod.Name, func() error {
		if h.owner { // the others have to leave its CPU first
			a.exclusive = true
		}
		err := errors.Join(a.differs(h), a.lost())
		if err == nil {
			a.held = append(a.held, h)
		} else if h.owner {
			a.exclusive = false
		}
		return err
	})
}

// letGo ends hold.
func (a *anyMoment) letGo(run *kubelet.Running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = slices.DeleteFunc(a.held, func(h heldPod) bool {
		if h.run == run && h.owner {
			a.exclusive = false
		}
		return h.run == run
	})
}

// settled waits, for as long as things are disturbed and then for shortest, with the lock held while it looks. A check for drift may come
// meanwhile, since no event may have told of what was cut.
func (a *anyMoment) settled(what string, look func() error) error {
	begun := time.Now()
	for {
		a.mu.Lock()
		err, back := look(), a.back
		a.mu.Unlock()
		if err == nil {
			return nil
		}
		if back.Before(begun) && !back.IsZero() {
			back = begun
		}
		if !back.IsZero() && time.Since(back) > patience(shortest) {
			return fmt.Errorf("%s, %s after everything was back: %w", what, time.Since(back).Round(time.Millisecond), err)
		}
		if back.IsZero() && a.ends() {
			return nil // the test has failed
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lost names what a held pod does not have any more; the lock is held. It asks nobody but the kernel.
func (a *anyMoment) lost() error {
	var errs []error
	for _, h := range a.held {
		errs = append(errs, a.differs(h))
	}
	return errors.Join(errs...)
}

// differs is the rig's with a process that is known: it is read without the runtime.
func (a *anyMoment) differs(h heldPod) error {
	w := slices.Clone(h.wants)
	if _, rest := cpus(); a.exclusive && !h.owner {
		w = append(w, "main cpuset.cpus="+rest)
	}
	for _, want := range w {
		what, value, _ := strings.Cut(want, "=")
		kind, process := strings.CutPrefix(what, "main @")
		if !process {
			continue
		}
		if got, err := processAttribute(h.pid, "@"+kind); err != nil || got != value {
			return fmt.Errorf("%s: want %s = %q, the kernel has %q, %v", h.run.Pod.Name, what, value, got, err)
		}
	}
	return a.rig.differs(h.run, withoutProcess(w))
}

// pidOf asks the runtime until it is there.
func (a *anyMoment) pidOf(run *kubelet.Running) (pid int, err error) {
	s := a.stubborn()
	err = s.again(a.t.Context(), "status of "+run.Pod.Name, func() (err error) { pid, err = a.pid(run, "main"); return err })
	return pid, err
}

func (a *anyMoment) stubborn() *stubborn {
	disturbed := func() time.Time {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.back
	}
	return &stubborn{kube: a.kube, client: a.host.CRI(), disturbed: disturbed, failed: a.failed, kill: func(id string) error {
		return a.host.Ctr(a.t.Context(), "tasks", "rm", "--force", id)
	}}
}
