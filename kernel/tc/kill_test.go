// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package tc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/model/shape"
)

// churning is set in the environment of a child that does nothing but change.
const churning = "KOORD_RT_TEST_CHURN"

func TestMain(m *testing.M) {
	if os.Getenv(churning) != "" {
		churn()
	}
	os.Exit(m.Run())
}

// churn sets, changes and restores until somebody kills it.
func churn() {
	fmt.Println("ready")
	for i := 0; ; i++ {
		for key, original := range map[string]string{upEgress: shape.Default, upIngress: shape.None} {
			s := Shaper{}
			err := s.SetShape(key, testShape)
			if err == nil {
				_, err = s.Sync(key, pods()[:1+i%3])
			}
			if err == nil && i%2 == 0 {
				err = s.SetShape(key, original)
			}
			if err != nil {
				fmt.Println(err)
			}
		}
	}
}

// A process that is killed at any point is followed by one that brings everything to what it shall be, and back.
func TestKill(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := n.snapshot()
	rnd := rand.New(rand.NewPCG(7, 8))
	half := 0
	for range 25 {
		var err error
		n.do(func() { err = killOne(time.Duration(rnd.IntN(3000)) * time.Microsecond) }) // a child is born in the namespace of its parent's thread
		if err != nil {
			t.Fatal(err)
		}
		for key, original := range map[string]string{upEgress: shape.Default, upIngress: shape.None} {
			if text, err := n.get(key); err != nil {
				t.Fatalf("%s after the kill: %v", key, err)
			} else if text != original && text != testShape {
				half++
			}
			n.set(key, testShape)
			n.sync(key, pods()...)
			if again := n.sync(key, pods()...); again != 0 {
				t.Errorf("%s: %d changes for nothing", key, again)
			}
			if text, err := n.get(key); text != testShape || err != nil {
				t.Errorf("%s: %q, %v", key, text, err)
			}
			n.set(key, original)
		}
		if after := n.snapshot(); after != before {
			t.Fatalf("before\n%safter\n%s", before, after)
		}
	}
	t.Logf("%d of 50 directions were found half made", half)
}

// killOne starts a child and kills it when it has worked for a while.
func killOne(after time.Duration) error {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), churning+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err = cmd.Start(); err != nil {
		return err
	}
	line := make([]byte, 6)
	_, err = out.Read(line)
	time.Sleep(after)
	rest := make(chan string)
	go func() {
		b := make([]byte, 512)
		n, _ := out.Read(b)
		rest <- string(b[:n])
	}()
	err = errors.Join(err, cmd.Process.Kill())
	if said := <-rest; said != "" {
		err = errors.Join(err, errors.New(said))
	}
	_ = cmd.Wait() // killed
	return err
}
