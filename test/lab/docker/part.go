// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// debian are the packages that are unpacked: docker.io 20.10 with its containerd 1.6 and runc 1.1 on bookworm, and the two
// libraries that a minimal system lacks. They are not installed: an installed docker.io starts a daemon of its own.
var debian = [...]string{"docker.io", "containerd", "runc", "tini", "libdevmapper1.02.1", "libseccomp2"}

// Files are those of the part that a daemon and its client need, relative to its folder: less than a guest would get with
// all of it.
func Files() []string {
	return []string{
		"usr/sbin/dockerd", "usr/bin/docker", "usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/sbin/runc",
		"usr/lib/x86_64-linux-gnu/libseccomp.so.2", "lib/x86_64-linux-gnu/libdevmapper.so.1.02.1",
	}
}

// layout changes when the part's content does.
const layout = "apt-get download, dpkg-deb -x, layout 1"

// Part returns the folder into which Debian's Docker is unpacked: usr/sbin/dockerd, usr/bin/docker ... It needs the host
// to be a Debian with package lists, which are fetched if the download fails without.
func Part(ctx context.Context, c *parts.Cache) (string, error) {
	spec := parts.Spec{Name: "docker", Version: "debian", Recipe: layout + " " + strings.Join(debian[:], " ")}
	return c.Ensure(ctx, spec, func(ctx context.Context, dir string) error {
		work := filepath.Join(dir, ".debs")
		if err := os.Mkdir(work, 0o755); err != nil {
			return fmt.Errorf("create download folder: %w", err)
		}
		args := append([]string{"-q", "-o", "APT::Sandbox::User=root", "download"}, debian[:]...)
		if err := tool(ctx, work, "apt-get", args...); err != nil {
			if err := tool(ctx, work, "apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", "update"); err != nil {
				return err
			}
			if err := tool(ctx, work, "apt-get", args...); err != nil {
				return err
			}
		}
		debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
		if err != nil || len(debs) != len(debian) {
			return fmt.Errorf("unpack docker: %d packages downloaded, want %d", len(debs), len(debian))
		}
		for _, deb := range debs {
			if err := tool(ctx, dir, "dpkg-deb", "-x", deb, dir); err != nil {
				return err
			}
		}
		return os.RemoveAll(work)
	})
}

func tool(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, tail(out))
	}
	return nil
}

// tail is the last 3000 bytes.
func tail(b []byte) []byte { return b[max(0, len(b)-3000):] }
