// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/mark"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
)

// Node tells of pods and containers what a runtime's answers lack: cri-dockerd tells no cgroup and no resources. kernel/place.
type Node interface {
	// Pod is the cgroup of the pod with a UID.
	Pod(uid string) (dir string, err error)
	// Within is the cgroup of a container in its pod's, and one of its processes.
	Within(pod, id string) (dir string, pid int, err error)
	// Resources are those in force. A value of one of the plans, newest first, stands as it was planned.
	Resources(t plan.Target, pid int, ours []plan.Plan) workload.Resources
}

// Beneath gives the node to ask for what the runtime does not tell; without it such pods and containers cannot be read. It is to
// be called before any question.
func (l *Lister) Beneath(n Node) { l.node = n }

// pod reads a sandbox, with its place from the node where the runtime does not tell it.
func (l *Lister) pod(raw []byte) (*workload.Pod, error) {
	p, based, err := readPod(raw)
	if err != nil {
		return nil, err
	}
	p.BaseUntold = !based
	if p.Cgroup != "" {
		return p, nil
	}
	if l.node == nil {
		return nil, fmt.Errorf("place pod %s: %w", p.FullName(), errUntold)
	}
	dir, err := l.node.Pod(p.UID)
	if err != nil {
		return nil, fmt.Errorf("place pod %s: %w", p.FullName(), err)
	}
	p.Place(dir, nil)
	if p.PID == 0 {
		if _, pid, err := l.node.Within(dir, p.ID); err == nil {
			p.PID = pid
		}
	}
	return p, nil
}

// record reads a container, with place and resources from the node where the runtime does not tell them. known are the marks on
// it, newest first.
func (l *Lister) record(ctx context.Context, raw []byte) (of func(known ...*protocol.Applied) *workload.Container, sandbox string, err error) {
	r, err := readContainer(raw)
	if err != nil {
		return nil, "", err
	}
	if r.sandbox == "" {
		if r.sandbox, err = l.sandboxOf(ctx, r.c.ID); err != nil {
			return nil, "", err
		}
	}
	if r.c.Cgroup == "" {
		if err := l.locate(ctx, &r); err != nil {
			return nil, "", fmt.Errorf("place container %s: %w", r.c.ID, err)
		}
	}
	return func(known ...*protocol.Applied) *workload.Container {
		c := *r.c
		marks := r.marked(known)
		if !r.based && c.State == workload.StateRunning {
			t := plan.Target{Level: plan.LevelContainer, Cgroup: c.Cgroup, Container: c.ID, Name: c.Name}
			ours := make([]plan.Plan, len(marks))
			for i, m := range marks {
				ours[i] = mark.PlanOf(m, t)
			}
			c.Base = l.node.Resources(t, c.PID, ours)
		}
		mark.Rebase(&c.Base, marks...)
		return &c
	}, r.sandbox, nil
}

// locate finds a container's cgroup, and a process that the runtime does not tell. One that has not started has none yet: where
// it will be follows from the pod's.
func (l *Lister) locate(ctx context.Context, r *read) error {
	if l.node == nil {
		return errUntold
	}
	if r.c.State == workload.StateStopped {
		return nil // it has none any more
	}
	pod, err := l.Sandbox(ctx, r.sandbox)
	if err != nil {
		return err
	}
	dir, pid, err := l.node.Within(pod.Cgroup, r.c.ID)
	if err != nil {
		if r.c.State == workload.StateCreated {
			v, err := l.Version(ctx)
			r.c.Cgroup = Cgroup(v.Name, pod.Cgroup, r.c.ID)
			return err
		}
		return err
	}
	r.c.Cgroup = dir
	if r.c.PID == 0 {
		r.c.PID = pid
	}
	return nil
}

// sandboxOf asks for the list with a container: ListContainersRequest: filter = 1 (id = 1).
func (l *Lister) sandboxOf(ctx context.Context, id string) (string, error) {
	filter := protowire.AppendTag(nil, 1, protowire.BytesType)
	filter = protowire.AppendString(filter, id)
	request := protowire.AppendTag(nil, 1, protowire.BytesType)
	reply, err := l.ask(ctx, callLimit, methodListContainers, protowire.AppendBytes(request, filter))
	if err != nil {
		return "", fmt.Errorf("ask for the sandbox of container %s: %w", id, err)
	}
	list, err := ReadContainers(reply)
	if err != nil {
		return "", err
	}
	for _, c := range list {
		if c.Container.ID == id && c.Sandbox != "" {
			return c.Sandbox, nil
		}
	}
	return "", fmt.Errorf("ask for the sandbox of container %s: %w", id, ErrNotFound)
}
