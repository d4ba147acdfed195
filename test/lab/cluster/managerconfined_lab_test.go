// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// confinement makes for a process what the container of packaging/manifests/manager.yaml is: its user, no capability and none to gain, and
// no file that it could write. $1 is the user, $2 the program and $3 its kubeconfig, which are copied to where that user may read them.
const confinement = `set -e
mount -t tmpfs -o mode=0755 none /mnt
cp "$2" /mnt/koord-manager
install -m 0400 -o "$1" "$3" /mnt/kubeconfig
for at in / /tmp /var /run /dev/shm /mnt; do
	if mountpoint -q $at; then mount -o remount,bind,ro $at; fi
done
user=$1
shift 3
exec setpriv --reuid "$user" --regid "$user" --clear-groups --bounding-set=-all --inh-caps=-all --nnp --pdeathsig KILL /mnt/koord-manager "$@"`

const kubeconfigFlag = "--kubeconfig="

// confined are the arguments of unshare(1) by which a koord-manager runs as in its Deployment.
func confined(t *testing.T, flags []string) []string {
	t.Helper()
	text := read(t, manifest("manager"))
	for _, promise := range []string{"runAsNonRoot: true", "allowPrivilegeEscalation: false", "readOnlyRootFilesystem: true", `drop: ["ALL"]`} {
		if !strings.Contains(text, promise) {
			t.Fatalf("the manifest of koord-manager does not say %s", promise)
		}
	}
	kubeconfig := ""
	flags = slices.DeleteFunc(slices.Clone(flags), func(f string) bool {
		path, is := strings.CutPrefix(f, kubeconfigFlag)
		if is {
			kubeconfig = path // the last one counts
		}
		return is
	})
	whole := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(whole, inOneFile(t, read(t, kubeconfig)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--mount", "--propagation", "slave", "sh", "-c", confinement, "sh", managersUser(t), bin("koord-manager"), whole}
	return append(append(args, kubeconfigFlag+"/mnt/kubeconfig"), flags...)
}

// managersUser is whose process the manifest makes koord-manager.
func managersUser(t *testing.T) string {
	t.Helper()
	user := regexp.MustCompile(`runAsUser: (\d+)`).FindStringSubmatch(read(t, manifest("manager")))
	if user == nil || user[1] == "0" {
		t.Fatalf("the manifest of koord-manager gives it the user %q", user)
	}
	return user[1]
}

// inOneFile is a kubeconfig with the certificates and the key that it names: a service account's token needs no files beside it either.
func inOneFile(t *testing.T, text string) []byte {
	t.Helper()
	return regexp.MustCompile(`"(certificate-authority|client-certificate|client-key)": ?"([^"]+)"`).ReplaceAllFunc([]byte(text), func(field []byte) []byte {
		parts := strings.Split(string(field), `"`)
		return []byte(`"` + parts[1] + `-data":"` + base64.StdEncoding.EncodeToString([]byte(read(t, parts[3]))) + `"`)
	})
}

// isConfined reads of the kernel that a process is what confined makes of it.
func isConfined(t *testing.T, pid int) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	eventually(t, 30*time.Second, func() error {
		name, err := os.Readlink(proc + "exe")
		if err == nil && name != "/mnt/koord-manager" {
			err = fmt.Errorf("the process is %s still", name)
		}
		return err
	})
	status := read(t, proc+"status")
	for _, want := range []string{`Uid:` + strings.Repeat(`\t`+managersUser(t), 4), `Groups:\t *`, `NoNewPrivs:\t1`, `CapEff:\t0+`, `CapPrm:\t0+`, `CapBnd:\t0+`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(status) {
			t.Errorf("koord-manager is not confined, want %s:\n%s", want, status)
		}
	}
	for line := range strings.Lines(read(t, proc+"mounts")) {
		if f := strings.Fields(line); (f[1] == "/" || f[1] == "/tmp" || f[1] == "/mnt") && !strings.HasPrefix(f[3], "ro") {
			t.Errorf("koord-manager could write: %s", line)
		}
	}
}
