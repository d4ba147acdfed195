// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// CriDockerdOptions of a CriDockerd.
type CriDockerdOptions struct {
	Cache    *parts.Cache // required
	Part     string       // optional: parts.CriDockerd03 (default, for dockerd 20.10) or CriDockerd (from dockerd 23)
	Endpoint string       // required: path of the CRI socket to serve
	Docker   string       // required: path of the Docker Engine's socket, the daemon's or a proxy's
	Dir      string       // required: existing folder for its state and log, removed by the caller
}

// CriDockerd serves CRI v1 from a Docker Engine. Sandboxes are parts.ImageRef, which
// the engine must have; pods of the node's network need no plugin.
type CriDockerd struct {
	Log    string
	daemon *daemon
}

// StartCriDockerd starts cri-dockerd and waits until it answers with the engine's readiness.
func StartCriDockerd(ctx context.Context, o CriDockerdOptions) (*CriDockerd, error) {
	if o.Part == "" {
		o.Part = parts.CriDockerd03
	}
	program, err := o.Cache.File(ctx, o.Part, "cri-dockerd")
	if err != nil {
		return nil, err
	}
	plugins, err := o.Cache.Get(ctx, parts.CNI)
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(o.Dir, name) }
	if err := os.MkdirAll(at("cni"), 0o755); err != nil {
		return nil, fmt.Errorf("create folder of cri-dockerd: %w", err)
	}
	c := &CriDockerd{Log: at("cri-dockerd.log")}
	c.daemon, err = startDaemon(c.Log, program,
		"--container-runtime-endpoint=unix://"+o.Endpoint, "--docker-endpoint=unix://"+o.Docker,
		"--cri-dockerd-root-directory="+at("root"), "--network-plugin=cni", "--cni-bin-dir="+plugins,
		"--cni-conf-dir="+at("cni"), "--cni-cache-dir="+at("cni-cache"),
		"--pod-infra-container-image="+parts.ImageRef, "--streaming-bind-addr=127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := c.daemon.waitReady(ctx, o.Endpoint); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Pid of cri-dockerd.
func (c *CriDockerd) Pid() int { return c.daemon.pid() }

// Close kills cri-dockerd; its containers live on in the engine.
func (c *CriDockerd) Close() error { return c.daemon.kill() }

// oomRunc runs a runc after it has lifted negative values of oomScoreAdj to 0 in what
// it is told to run: the bundle's config.json (create, run), the process file (exec).
const oomRunc = `#!/bin/sh
last=
for a in "$@"; do
	case "$last" in
	--bundle | -b) sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$a/config.json" ;;
	--process | -p) sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$a" ;;
	esac
	last=$a
done
exec RUNC "$@"
`

// WriteOOMRunc writes a runc for dockerd (daemon.json: runtimes, default-runtime) on a
// machine without CAP_SYS_RESOURCE: there cri-dockerd's sandboxes, oom_score_adj -998, cannot start, and Docker
// has no switch like containerd's restrict_oom_score_adj. It returns the path.
func WriteOOMRunc(dir, runc string) (string, error) {
	path := filepath.Join(dir, "oom-runc")
	quoted := "'" + strings.ReplaceAll(runc, "'", `'\''`) + "'"
	if err := os.WriteFile(path, []byte(strings.Replace(oomRunc, "RUNC", quoted, 1)), 0o755); err != nil {
		return "", fmt.Errorf("write runc wrapper: %w", err)
	}
	return path, nil
}
