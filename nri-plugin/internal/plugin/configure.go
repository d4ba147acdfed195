// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/koord-rt/koord-rt/adapt/nri"
	"github.com/koord-rt/koord-rt/daemon/metrics"
)

// errAbandoned ends a configuration that the connection did not live to see.
var errAbandoned = errors.New("connection closed before the runtime configured us")

// abandonedRuntime is the name under which connect ends a Configure that will never come.
const abandonedRuntime = "koord-rt/abandoned"

// Configure learns the runtime's and NRI's version, adapts the subscription to it and sets the deadline. A runtime that
// is too old is refused: half of what we would promise it would silently drop.
func (p *Plugin) Configure(_ context.Context, _, name, version string) (api.EventMask, error) {
	defer p.observe(metrics.EventConfigure, time.Now())
	if name == abandonedRuntime {
		return 0, errAbandoned
	}
	var nriVersion string
	timeout := p.o.Config.RequestTimeout.Std()
	if s := p.session.Load(); s != nil {
		nriVersion = (*s).RuntimeNRIVersion()
		if t := (*s).RequestTimeout(); t > 0 {
			timeout = t
		}
	}
	r := nri.Runtime(name, version, nriVersion)
	r.RequestTimeoutMS = timeout.Milliseconds()
	p.engine.Views().SetRuntime(r)
	p.m.SetBuild(p.o.Version, name, version, r.NRI)
	if why, ok := r.Supported(); !ok {
		p.engine.Trouble("runtime", name+" "+version, errors.New(why))
		return 0, fmt.Errorf("configure for %s %s: %s", name, version, why)
	}
	// Half of the runtime's limit leaves it time for its own part and for the way there and back.
	deadline := min(p.o.Config.Deadline.Std(), timeout/2)
	p.engine.SetDeadline(deadline)
	p.log.Info("configured by the runtime", "runtime", name, "version", version, "nri", r.NRI,
		"requestTimeout", timeout, "deadline", deadline, "limits", r.Problems)
	_, features, _ := p.engine.Views().List()
	for _, f := range features {
		if f.State != "active" && f.State != "off" {
			p.log.Info("feature", "name", f.Feature, "state", f.State, "detail", f.Detail)
		}
	}
	return nri.Events(&r), nil
}

// Shutdown is the runtime's good-bye; the connection closes next.
func (p *Plugin) Shutdown(context.Context) {
	p.log.Info("runtime is shutting down")
}

// session is the part of the stub that a handler may ask.
type session interface {
	RequestTimeout() time.Duration
	RuntimeNRIVersion() string
}
