// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// UpstreamOptions of an UpstreamProxy.
type UpstreamOptions struct {
	Cache    *parts.Cache // required
	Endpoint string       // required: path of the socket to serve; replaced if it exists
	Runtime  string       // required: path of the runtime's socket
	Log      string       // required: file that gets the proxy's output
}

// UpstreamProxy is upstream's koord-runtime-proxy in front of a CRI socket, without
// hook servers: the peer of comparisons.
type UpstreamProxy struct {
	daemon  *daemon
	created []string // folders that it makes and that were not there, deepest first
}

// upstreamHooks is a constant of upstream: it makes and watches this folder.
const upstreamHooks = "/etc/runtime/hookserver.d"

// StartUpstreamProxy starts the proxy and waits until it answers CRI v1 with the
// runtime's readiness. The runtime must be up: the proxy asks it at its start.
func StartUpstreamProxy(ctx context.Context, o UpstreamOptions) (*UpstreamProxy, error) {
	program, err := o.Cache.File(ctx, parts.UpstreamProxy, "koord-runtime-proxy")
	if err != nil {
		return nil, err
	}
	p := &UpstreamProxy{}
	for _, d := range []string{upstreamHooks, filepath.Dir(upstreamHooks)} {
		if _, err := os.Stat(d); errors.Is(err, fs.ErrNotExist) {
			p.created = append(p.created, d)
		}
	}
	p.daemon, err = startDaemon(o.Log, program, "--koord-runtimeproxy-endpoint="+o.Endpoint,
		"--remote-runtime-service-endpoint="+o.Runtime, "--backend-runtime-mode=Containerd")
	if err != nil {
		return nil, err
	}
	if err := p.daemon.waitReady(ctx, o.Endpoint); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Pid of the proxy, for measurements.
func (p *UpstreamProxy) Pid() int { return p.daemon.pid() }

// Close kills the proxy and removes the empty folders that it made.
func (p *UpstreamProxy) Close() error {
	if err := p.daemon.kill(); err != nil {
		return err
	}
	for _, d := range p.created {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("remove folder of upstream's proxy: %w", err)
		}
	}
	return nil
}
