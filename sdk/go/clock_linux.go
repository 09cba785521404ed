package leasehold

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

var began = time.Now()

// now reads a clock that goes on while the machine sleeps, which that of time.Now does not.
func now() time.Duration {
	var read syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&read)), 0)
	if failed != 0 {
		return time.Since(began)
	}
	return time.Duration(read.Nano())
}
