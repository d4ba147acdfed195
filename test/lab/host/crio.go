// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// crioNamespace is the folder below Paths.Runc that containerd would name after its namespace.
const crioNamespace = "crio"

func (h *Host) isCRIO() bool { return h.options.Version == parts.CRIO }

// crioArgs keep CRI-O away from the machine's own configuration: what is a flag is in no file.
func (h *Host) crioArgs() []string {
	at := func(name string) string { return filepath.Join(h.Dir, name) }
	return []string{
		"--config", h.Config, "--config-dir", h.DropIns,
		"--registries-conf", at("registries.conf"), "--registries-conf-dir", at("registries.conf.d"),
	}
}

// configureCRIO writes CRI-O's configuration and the image that it pulls.
func (h *Host) configureCRIO() error {
	at := func(name string) string { return filepath.Join(h.Dir, name) }
	for _, d := range []string{"hooks", "registries.conf.d", "ns", "attach", "policies"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			return fmt.Errorf("create lab folder: %w", err)
		}
	}
	runc := h.RuncBin
	if !hasSysResource() {
		runc = at("runc.sh")
		if err := os.WriteFile(runc, []byte(fmt.Sprintf(unloweredRunc, h.RuncBin)), 0o755); err != nil {
			return fmt.Errorf("write runtime: %w", err)
		}
	}
	for name, text := range map[string]string{
		filepath.Base(h.Config): h.renderCRIO(runc),
		"registries.conf":       "unqualified-search-registries = []\n",
		"policy.json":           `{"default":[{"type":"insecureAcceptAnything"}]}` + "\n",
		"storage.conf":          fmt.Sprintf("[storage]\ndriver = %q\ngraphroot = %q\nrunroot = %q\n", h.storage(), at("root"), at("state")),
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write CRI-O's configuration: %w", err)
		}
	}
	return nil
}

// unloweredRunc stands for containerd's restrict_oom_score_adj, which CRI-O does not have: without CAP_SYS_RESOURCE runc cannot
// lower oom_score_adj below its own.
const unloweredRunc = `#!/bin/sh
for a; do
	[ "$last" = --bundle ] && sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$a/config.json"
	last=$a
done
exec %s "$@"
`

func (h *Host) storage() string {
	if h.options.Snapshotter == "native" {
		return "vfs"
	}
	return "overlay"
}

// renderCRIO writes every path, so that nothing of the machine's is read or written. Only the cache of blobs has no key and stays in
// /var/lib/containers/cache.
func (h *Host) renderCRIO(runc string) string {
	var b bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	at := func(name string) string { return filepath.Join(h.Dir, name) }
	put("[crio]\nroot = %q\nrunroot = %q\nstorage_driver = %q\nlog_dir = %q", at("root"), at("state"), h.storage(), h.Logs)
	put("version_file = %q\nversion_file_persist = \"\"\nclean_shutdown_file = \"\"\ninternal_wipe = false", at("version"))
	put("[crio.api]\nlisten = %q\nstream_port = \"0\"", h.Socket)
	put("[crio.image]\nnamespaced_auth_dir = %q", at("auth"))
	put("default_transport = %q\nsignature_policy = %q\nsignature_policy_dir = %q", "dir:"+at("images")+"/", at("policy.json"), at("policies"))
	put("pause_image = %q\npause_command = \"\"", parts.ImageRef)
	put("[crio.network]\nnetwork_dir = %q\nplugin_dirs = [%q]", at("cni"), at("cni/bin"))
	put("[crio.nri]\nenable_nri = %t\nnri_listen = %q\nnri_plugin_dir = %q\nnri_plugin_config_dir = %q", !h.options.DisableNRI, h.NRISocket, h.NRIPlugin, h.NRIConfig)
	put("nri_plugin_registration_timeout = %q\nnri_plugin_request_timeout = %q", h.options.RegisterTimeout, h.options.RequestTimeout)
	put("[crio.runtime]\ncgroup_manager = %q\ndefault_runtime = \"runc\"\napparmor_profile = \"unconfined\"\nselinux = false\ndisable_hostport_mapping = true", h.crioManager())
	put("pinns_path = %q\nnamespaces_dir = %q\ncontainer_exits_dir = %q\ncontainer_attach_socket_dir = %q", filepath.Join(h.Bin, "pinns"), at("ns"), at("exits"), at("attach"))
	put("default_capabilities = [\"CHOWN\", \"DAC_OVERRIDE\", \"FSETID\", \"FOWNER\", \"MKNOD\", \"SETGID\", \"SETUID\", \"SETPCAP\", \"NET_BIND_SERVICE\", \"KILL\"]") // MKNOD: how tests look at the device cgroup
	put("hooks_dir = [%q]\ncdi_spec_dirs = [%q]\nirqbalance_config_file = %q\nirqbalance_config_restore_file = \"disable\"", at("hooks"), h.CDI, at("irqbalance"))
	for _, name := range append([]string{"runc"}, h.options.Handlers...) {
		put("[crio.runtime.runtimes.%q]\nruntime_path = %q\nruntime_type = \"oci\"\nruntime_root = %q", name, runc, filepath.Join(h.Runc, crioNamespace))
		put("monitor_path = %q\nmonitor_cgroup = \"pod\"", filepath.Join(h.Bin, "conmon"))
	}
	return b.String()
}

func (h *Host) crioManager() string {
	if h.options.SystemdCgroup {
		return "systemd"
	}
	return "cgroupfs"
}

// pullImage lays parts.ImageRef out where CRI-O's default transport finds it by its name, and has it pulled.
func (h *Host) pullImage(ctx context.Context) error {
	archive, err := h.options.Cache.File(ctx, parts.Image, "image.tar")
	if err != nil {
		return err
	}
	if err := unpackImage(archive, filepath.Join(h.Dir, "images", parts.ImageRef)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := h.cri.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: parts.ImageRef}}); err != nil {
		return fmt.Errorf("pull image: %w; end of CRI-O's log:\n%s", err, tail(h.Log, 2000))
	}
	return h.cri.WaitImage(ctx, parts.ImageRef)
}

// usesCRIO recognises CRI-O and the monitors of its containers.
func usesCRIO(dir string, args []string) bool {
	switch filepath.Base(args[0]) {
	case "crio", "conmon":
		for _, a := range args[1:] {
			if strings.HasPrefix(a, dir+"/") {
				return true
			}
		}
	}
	return false
}
