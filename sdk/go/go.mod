module leasehold.example/sdk/go

go 1.22
