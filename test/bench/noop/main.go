// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command noop is an NRI plugin that subscribes to the events of koord-nri and does nothing with them: what is left of a
// request's time when it answers is the price of NRI itself. With -bare it does the bare system calls of StartContainer and
// UpdateContainer and a fixed piece of arithmetic in CreateContainer, beside a koord-nri or -alone, with -stamp it adds one annotation to
// each container.
//
// Input is the NRI socket; output is a file that appears when the runtime has synchronised, and with -bare a file of what
// each of both took. Only the benchmarks run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "noop:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("noop", flag.ContinueOnError)
	socket := f.String("socket", "", "NRI socket")
	ready := f.String("ready", "", "file to create when synchronised")
	nice := f.Int("nice", 0, "nice value")
	realTime := f.Bool("realtime", false, "run in real time")
	index := f.String("index", "05", "place among the runtime's plugins")
	took := f.String("bare", "", "do StartContainer's and UpdateContainer's system calls and CreateContainer's arithmetic, and write to this file at the end what each took")
	ledger := f.String("ledger", "", "with -bare, file to create, and to append to before each write, as koord-nri does to its ledger")
	work := f.Duration("work", 0, "processor time of the arithmetic")
	alone := f.Bool("alone", false, "with -bare, without koord-nri: answer CreateContainer as koord-nri does, make the system calls in StartContainer and UpdateContainer, for the container, and no arithmetic")
	stamp := f.Bool("stamp", false, "add an annotation to each container")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *nice != 0 {
		if err := run.Prioritise(*nice); err != nil {
			return err
		}
	}
	if *realTime {
		if err := run.RealTime(); err != nil {
			return err
		}
	}
	p := &plugin{ready: *ready, stamp: *stamp}
	if *took != "" {
		b, err := newBare(*work, *alone, *ledger)
		if err != nil {
			return err
		}
		p.bare = b
		defer func() { err = errors.Join(err, b.save(*took)) }()
	}
	s, err := stub.New(p, stub.WithPluginName("noop"), stub.WithPluginIdx(*index), stub.WithSocketPath(*socket))
	if err != nil {
		return fmt.Errorf("make the NRI stub: %w", err)
	}
	p.session = s
	return s.Run(ctx)
}

// plugin is the benchmark's peer: it answers every event at once and asks for nothing; as bare or with a stamp it does that much and no more.
type plugin struct {
	ready   string
	session stub.Stub
	bare    *bare // nil unless asked for
	stamp   bool
}

// Configure subscribes to what koord-nri would subscribe to on this runtime.
func (p *plugin) Configure(_ context.Context, _, name, version string) (api.EventMask, error) {
	r := nri.Runtime(name, version, p.session.RuntimeNRIVersion())
	return nri.Events(&r), nil
}

// Synchronize tells the benchmark that the plugin is connected.
func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, os.WriteFile(p.ready, nil, 0o600)
}

// RunPodSandbox does nothing, or prepares the bare system calls.
func (p *plugin) RunPodSandbox(_ context.Context, sb *api.PodSandbox) error {
	if p.bare == nil || p.bare.alone {
		return nil
	}
	return p.bare.prepare(sb)
}

// UpdatePodSandbox does nothing.
func (*plugin) UpdatePodSandbox(context.Context, *api.PodSandbox, *api.LinuxResources, *api.LinuxResources) error {
	return nil
}

// PostUpdatePodSandbox does nothing.
func (*plugin) PostUpdatePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// StopPodSandbox does nothing, or the bare system calls of a start.
func (p *plugin) StopPodSandbox(_ context.Context, sb *api.PodSandbox) error {
	if p.bare == nil || p.bare.alone {
		return nil
	}
	return p.bare.stop(sb)
}

// RemovePodSandbox does nothing.
func (*plugin) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// CreateContainer does nothing, or the arithmetic, or adds an annotation as long as koord-nri's on a container with burst and batch
// resources.
func (p *plugin) CreateContainer(_ context.Context, sb *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if p.bare != nil && p.bare.alone {
		return answer(sb.GetLabels()[classLabel]), nil, nil
	}
	if p.bare != nil {
		p.bare.create()
	}
	if !p.stamp {
		return nil, nil, nil
	}
	a := &api.ContainerAdjustment{}
	a.AddAnnotation("koord-rt.dev/stamp", strings.Repeat("x", stampLength))
	return a, nil, nil
}

// stampLength is in bytes.
const stampLength = 200

// StartContainer does nothing, or its bare system calls where no koord-nri makes them.
func (p *plugin) StartContainer(_ context.Context, sb *api.PodSandbox, c *api.Container) error {
	if p.bare == nil || !p.bare.alone {
		return nil
	}
	return p.bare.start(sb, c)
}

// UpdateContainer does nothing, or its bare system calls.
func (p *plugin) UpdateContainer(_ context.Context, sb *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	switch {
	case p.bare == nil:
		return nil, nil
	case p.bare.alone:
		return nil, p.bare.lower(sb, c, r)
	}
	return nil, p.bare.update(sb)
}

// PostUpdateContainer does nothing, as all below.
func (*plugin) PostUpdateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}

// StopContainer does nothing.
func (*plugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

// RemoveContainer does nothing.
func (*plugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }
