// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package dockertest_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/cri-proxy/internal/docker/dockertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mirror answers with its name, what it was asked and the body, with a status of its own.
func mirror(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, name, " ", r.Method, " ", r.URL, " ", string(body), " ", err)
	})
}

// A client at a daemon's socket has its status and text, of the life that is there now; none when it is closed. All of it ends with
// the test, the directory too.
func TestDaemonAndClient(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("a test", func(t *testing.T) {
		dir = dockertest.Dir(t)
		socket := filepath.Join(dir, "docker.sock")
		if len(socket) >= 108 { // sun_path, unix(7)
			t.Errorf("%s is too long for a socket", socket)
		}
		client := dockertest.Client(t, socket)
		ask := func(want string) {
			t.Helper()
			status, text := dockertest.Do(t, client, http.MethodPost, "/v1.41/containers/create?name=x", strings.NewReader("{}"))
			if status != http.StatusTeapot || text != want {
				t.Errorf("%d %q, want %q", status, text, want)
			}
		}
		first := dockertest.Serve(t, socket, mirror("first"))
		ask("first POST /v1.41/containers/create?name=x {} <nil>")
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if c, err := dockertest.Dial(socket); err == nil {
			_ = c.Close()
			t.Error("a closed daemon answers")
		}
		if err := os.WriteFile(socket, nil, 0o600); err != nil { // what a kill leaves is in the way of the next life
			t.Fatal(err)
		}
		dockertest.Serve(t, socket, mirror("second"))
		ask("second POST /v1.41/containers/create?name=x {} <nil>")
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
