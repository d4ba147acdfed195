// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/adapt/cri"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
)

// actTell: the runtime is told what its record of a container has to say.
const actTell apply.Action = "tell"

// tellRuntime takes what is ours out of the runtime's records of the containers, by the update that the kubelet uses, when the kernel has been
// restored: a later update would write ours again or, where it lowers a CPU limit below a burst of ours, be refused. What the record says by now
// is asked for, since the kubelet may have changed it without us.
func (e *env) tellRuntime(ctx context.Context, m *machine, steps []apply.RestoreStep, endpoint string, dryRun bool) []apply.RestoreStep {
	var ids []string
	of := map[string][]*apply.RestoreStep{}
	for i := range steps {
		s := &steps[i]
		if s.Recorded == nil || s.Target.Container == "" || s.Err != nil {
			continue
		}
		if of[s.Target.Container] == nil {
			ids = append(ids, s.Target.Container)
		}
		of[s.Target.Container] = append(of[s.Target.Container], s)
	}
	if len(ids) == 0 {
		return nil
	}
	list, failed := e.runtime(ctx, endpoint)
	if list == nil && failed == nil { // such a runtime writes what an update names and nothing else
		if dryRun {
			return nil
		}
		var out []apply.RestoreStep
		for _, id := range ids {
			if err := m.applier.Told(of[id]); err != nil {
				out = append(out, apply.RestoreStep{Target: of[id][0].Target, Action: actTell, Err: err})
			}
		}
		return out
	}
	if list != nil {
		defer func() { _ = list.Close() }()
	}
	var out []apply.RestoreStep
	for _, id := range ids {
		s := apply.RestoreStep{Target: of[id][0].Target, Action: actTell, Reason: "the runtime's own record of it says ours"}
		told, err := []*apply.RestoreStep(nil), failed
		if err == nil {
			told, err = recordedIn(ctx, list, id, of[id])
		}
		for _, t := range told {
			s.To = append(s.To, t.Knob.String()+"="+t.Recorded.Back.Value.String())
		}
		if err == nil && len(told) > 0 && !dryRun {
			err = tell(ctx, list, id, told)
		}
		if !dryRun && (err == nil || errors.Is(err, cri.ErrNotFound)) {
			s.Err = m.applier.Told(of[id])
		}
		switch {
		case s.Err != nil:
		case errors.Is(err, cri.ErrNotFound) || err == nil && len(told) == 0:
			continue
		case err != nil:
			s.Action, s.Reason = apply.ActRecreate, fmt.Sprintf("the runtime's own record of it may say ours, which its next update writes; restore once more, or make the pod anew: %v", err)
		}
		out = append(out, s)
	}
	return out
}

// recordedIn are the steps whose values the runtime still has as we have put them.
func recordedIn(ctx context.Context, list *cri.Lister, id string, steps []*apply.RestoreStep) (told []*apply.RestoreStep, err error) {
	says, err := list.Specified(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		ours := slices.ContainsFunc(s.Recorded.Ours, func(o plan.Setting) bool { return mark.Holds(&says, &o) })
		if ours && s.Recorded.Tellable() && !mark.Holds(&says, &s.Recorded.Back) {
			told = append(told, s)
		}
	}
	return told, nil
}

// tell has the runtime take what its record is to say, and looks whether it has: a plugin of ours that runs answers with ours again.
func tell(ctx context.Context, list *cri.Lister, id string, told []*apply.RestoreStep) error {
	back := make(plan.Plan, len(told))
	for i, s := range told {
		back[i] = s.Recorded.Back
	}
	if err := list.Restate(ctx, id, back); err != nil {
		return err
	}
	again, err := recordedIn(ctx, list, id, told)
	if err == nil && len(again) > 0 {
		err = errSetAgain
	}
	return err
}

// errSetAgain: it was told, and says ours all the same.
var errSetAgain = errors.New("it was told, and says ours again: stop koord-nri and koord-runtime-proxy first")

// runtime is a client of the runtime that answers: at the endpoint that is given, else where our daemons reach it, else where it answers
// usually. Both are nil where it is one that does not write its record again: Docker, and CRI-O, which hands the OCI runtime what an update
// names (toOCIResources of its server/container_update_resources.go).
func (e *env) runtime(ctx context.Context, endpoint string) (*cri.Lister, error) {
	at := []string{endpoint}
	if endpoint == "" {
		var docker bool
		if at, docker = e.endpoints(); docker {
			return nil, nil
		}
		for i, endpoint := range at {
			at[i] = "unix://" + e.path(strings.TrimPrefix(endpoint, "unix://"))
		}
	}
	var failed error
	for _, endpoint := range at {
		list, err := cri.NewLister(endpoint)
		if err == nil {
			var v cri.Version
			v, err = list.Version(ctx)
			if err == nil && !strings.EqualFold(v.Name, "cri-o") {
				return list, nil
			}
			_ = list.Close()
			if err == nil {
				return nil, nil
			}
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", endpoint, err))
	}
	return nil, fmt.Errorf("%w (--runtime-endpoint says where it answers)", failed)
}

// endpoints are where the runtime may answer, the likeliest first.
func (e *env) endpoints() (at []string, docker bool) {
	add := func(endpoint string) {
		if endpoint != "" && !slices.Contains(at, endpoint) {
			at = append(at, endpoint)
		}
	}
	for _, d := range e.installed() {
		if d.status == nil {
			continue
		}
		add(e.nodeConfig(&d).Host.CRIEndpoint)
		data, ok := e.configOf(d.status)
		switch {
		case ok && d.writer == writerProxy:
			if c, _, err := config.LoadProxy(data); err == nil {
				docker = docker || c.BackendMode == config.BackendDocker
				add("unix://" + c.RuntimePath())
			}
		case ok && d.writer == writerKoordlet:
			if c, _, err := config.LoadKoordlet(data); err == nil {
				add("unix://" + c.RuntimePath())
			}
		}
		add(cri.Endpoint(strings.ToLower(d.status.RuntimeName)))
	}
	if len(at) == 0 {
		add(cri.Endpoint("containerd"))
	}
	return at, docker
}
